// ./solver instance.json limit_s: prints better and better answers until the limit.
// ./solver instance.json limit_s COST: only raises the lower bound, towards the cost of a known answer.

#include <iostream>
#include <thread>

#include <sched.h>

#include "search.hpp"

namespace {

constexpr const char *PROVED = "proved lower bound (Lagrangian relaxation): ";

// One line, written at once: what is killed in the middle of it leaves no half answer that looks like one.
void show(const std::vector<int> &answer) {
    std::string line = "[";
    for (size_t node = 0; node < answer.size(); ++node) line += (node ? ", " : "") + std::to_string(answer[node]);
    line += "]\n";
    for (size_t at = 0; at < line.size();) {
        const ssize_t written = write(STDOUT_FILENO, line.data() + at, line.size() - at);
        if (written <= 0) return;
        at += static_cast<size_t>(written);
    }
}

int cores() {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? std::max(1, CPU_COUNT(&allowed)) : 1;
}

std::vector<int> thrifty(const Instance &instance) {
    std::vector<int> answer;
    for (const auto &usage : instance.usages)
        answer.push_back(static_cast<int>(std::min_element(usage.begin(), usage.end()) - usage.begin()));
    return answer;
}

}  // namespace

int main(int count, char **arguments) {
    if (count < 3) return std::cerr << "usage: solver instance.json limit_s\n", 2;
    const double began = now_s(), limit_s = std::atof(arguments[2]);
    const double deadline = began + limit_s - std::min(1.0, 0.05 * limit_s) - 0.1;
    const char *told = std::getenv("KERNEL_EVAL_SEED");
    const std::uint64_t seed = told ? std::strtoull(told, nullptr, 10) : 1;
    try {
        const Instance instance = Reader(arguments[1]).read();
        const std::vector<int> first = thrifty(instance);
        const bool fits = instance.fits(first);
        i128 shown_cost = fits ? instance.cost(first) : -1;
        if (fits && count == 3) show(first);
        const Reduced reduced = Presolve(instance).run();
        const Model model(reduced);
        if (count > 3) {  // no answers, only the bound
            Dual dual(model);
            while (now_s() < deadline && dual.advance(std::atof(arguments[3]))) continue;
            return std::cerr << PROVED << static_cast<i64>(dual.bound * (1 - 1e-9)) << '\n', 0;
        }
        Best best;
        std::vector<std::thread> threads;
        for (int number = 0; number < cores(); ++number)
            threads.emplace_back([&, number] { Search(model, best, seed * 1000 + number, deadline).run(number == 0); });
        int version = 0;
        auto look = [&] {
            if (best.version == version) return;
            version = best.version;
            std::vector<int> chosen;
            best.take(chosen);
            const std::vector<int> answer = reduced.expand(chosen);
            const i128 cost = instance.cost(answer);
            if ((shown_cost < 0 || cost < shown_cost) && instance.fits(answer)) {
                shown_cost = cost;
                show(answer);
            }
        };
        while (now_s() < deadline && !model.free.empty()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(std::clamp(limit_s * 5, 20.0, 500.0))));
            look();
        }
        for (std::thread &thread : threads) thread.join();
        look();
        std::cerr << PROVED << static_cast<i64>(best.bound * (1 - 1e-9)) << '\n';
    } catch (const std::exception &error) {
        return std::cerr << error.what() << '\n', 1;
    }
}
