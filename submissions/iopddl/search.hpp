// Simulated annealing on the reduced problem, in several threads that share the best answer.
//
// What is minimised is cost + weight * overflow, and in most runs also what memory costs at the dual's prices, until
// near the end. The weight follows the walk: it grows while the memory limit is broken and shrinks while it is not.
// Three kinds of moves: one node; one node with neighbours that then have something better (a ripple); and, once it has
// cooled, the exact optimum of a region of nodes (region.hpp).
//
// One thread finds the prices (dual.hpp). The others anneal without them until there are some. Then all threads make
// warm runs from the best answer.

#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "dual.hpp"
#include "region.hpp"

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Random {
    std::uint64_t state;

    explicit Random(std::uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ULL + 1) {
        for (int round = 0; round < 8; ++round) next();
    }
    std::uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545F4914F6CDD1DULL;
    }
    int below(size_t most) { return static_cast<int>(((next() >> 32) * most) >> 32); }
    double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }  // above 0, 1 at most
};

// The best answer that any thread has found, and the best prices of memory.
class Best {
  public:
    void offer(i64 cost, const std::vector<int> &chosen) {
        if (cost >= least.load(std::memory_order_relaxed)) return;
        std::lock_guard guard(mutex);
        if (cost >= least) return;
        least = cost;
        answer = chosen;
        ++version;
    }
    i64 take(std::vector<int> &chosen) {
        std::lock_guard guard(mutex);
        chosen = answer;
        return least;
    }
    void offer(double proved, const std::vector<double> &paid) {
        std::lock_guard guard(mutex);
        bound = proved;
        price = paid;
    }
    std::vector<double> prices() {
        std::lock_guard guard(mutex);
        return price;
    }
    std::atomic<i64> least{std::numeric_limits<i64>::max()};
    std::atomic<int> version{0};
    std::atomic<double> bound{0};  // no answer costs less, as far as message passing has shown

  private:
    std::mutex mutex;
    std::vector<int> answer;
    std::vector<double> price;  // at each time point; empty until there are any
};

class Search {
  public:
    Search(const Model &model, Best &best, std::uint64_t seed, double deadline)
        : model(model), best(best), random(seed), deadline(deadline), state(model, thrifty(model)), region(model, 1e5), mark(model.size()) {}

    // Runs until the deadline; where it `leads`, from what message passing finds.
    void run(bool leads) {
        offer();
        if (model.free.empty()) return;
        measure();
        if (leads) relax();
        const double all = deadline - now_s();
        if (!leads) {
            anneal(hot, hot * 1e-6, now_s(), 0.07 * all);
        }
        for (int number = 0; now_s() < deadline; ++number) {
            const double most = std::max(4.0, 0.004 * model.first.back());  // longer does a small instance no good
            const double left = deadline - now_s();
            double seconds = std::min({left, most, 0.3 * all});
            if (left - seconds < 0.5 * seconds) seconds = left;
            std::vector<double> price = best.prices();
            if (price.empty()) {
                anneal(hot, hot * 1e-6, now_s(), seconds);
                continue;
            }
            std::vector<int> start;
            if (best.take(start) == std::numeric_limits<i64>::max()) start = state.chosen;
            const bool brief = seconds < 0.1 * all;  // there is time for runs that begin anew
            if (brief && number % 2) {
                const double scale = 0.5 + 0.7 * random.unit();
                for (double &one : price) one *= scale;
            }
            warm(start, price, hot * std::pow(10.0, brief ? -4 * random.unit() : -1 - 3 * random.unit()), seconds);
        }
    }

  private:
    const Model &model;
    Best &best;
    Random random;
    double deadline;
    State state;
    Region region;
    std::vector<int> mark;  // of the nodes of a move
    int stamp = 0;
    std::vector<std::pair<int, int>> undo;
    double hot = 1, weight = 1;
    static constexpr int MOST_RIPPLE = 24, HUB = 200;

    // Finds prices of memory. Answers of message passing are offered as they are, and now and then one is the start of a
    // short run.
    void relax() {
        const double began = now_s(), all = deadline - began;
        Dual dual(model);
        State tried(model, dual.answer());
        double next = 0;
        for (int pass = 0; now_s() < began + 0.4 * all; ++pass) {
            const double reached = best.least < HARD ? static_cast<double>(best.least) : std::numeric_limits<double>::max();
            const bool going = dual.advance(reached);
            tried.reset(dual.answer());
            if (tried.overflow == 0) best.offer(tried.cost, tried.chosen);
            if (pass % 32 == 31 || !going) best.offer(dual.bound, dual.price);
            if (!going) break;
            if ((pass > 60 || now_s() > began + 0.1 * all) && now_s() > next) {
                const double start = now_s();
                warm(dual.answer(), dual.price, hot * 1e-3, 0.02 * all);
                next = now_s() + 2 * (now_s() - start);
            }
        }
        best.offer(dual.bound, dual.price);
    }

    // A run from that answer, at these prices until near its end.
    void warm(const std::vector<int> &start, const std::vector<double> &price, double from, double seconds) {
        const double dearest = model.points ? *std::max_element(price.begin(), price.end()) : 0;
        if (dearest > 0) weight = 1.5 * dearest;  // less would not make it fit, more would keep it from moving
        state.charge(price);
        state.reset(start);
        anneal(from, hot * 1e-6, now_s(), 0.7 * seconds);
        state.charge(std::vector<double>(model.points));
        state.reset(std::vector<int>(state.chosen));
        anneal(from * 1e-2, hot * 1e-6, now_s(), 0.3 * seconds);
    }

    // Every node at its least usage.
    static std::vector<int> thrifty(const Model &model) {
        std::vector<int> chosen(model.size());
        for (int node = 0; node < model.size(); ++node) {
            double least = std::numeric_limits<double>::max();
            for (int strategy = 0; strategy < model.width(node); ++strategy) {
                double used = 0;
                for (const auto &span : model.spans_of(node))
                    used += static_cast<double>(span.usage[strategy]) * (span.end - span.begin);
                if (used < least) least = used, chosen[node] = strategy;
            }
        }
        return chosen;
    }

    void offer() {
        if (state.overflow == 0) best.offer(state.cost - state.paid, state.chosen);
    }

    // The temperature to begin with and the first weight, from random changes of single nodes.
    void measure() {
        std::vector<double> changes, weights;
        for (int round = 0; round < 20000; ++round) {
            const auto [node, strategy] = pick();
            const double change = std::abs(static_cast<double>(state.change(node, strategy)));
            if (change <= 0 || change > HARD / 4) continue;
            changes.push_back(change);
            if (const i64 spill = state.spill(node, strategy); spill > 0) weights.push_back(change / static_cast<double>(spill));
        }
        std::sort(changes.begin(), changes.end());
        std::sort(weights.begin(), weights.end());
        if (!changes.empty()) hot = std::max(1.0, changes[changes.size() * 9 / 10]);
        if (!weights.empty()) weight = weights[weights.size() / 2];
    }

    std::pair<int, int> pick() {
        const int node = model.free[random.below(model.free.size())];
        int strategy = random.below(model.width(node) - 1);
        return {node, strategy + (strategy >= state.chosen[node])};
    }

    double value() const { return static_cast<double>(state.cost) + weight * static_cast<double>(state.overflow); }

    void anneal(double from, double to, double began, double seconds) {
        double temperature = from, region_seconds = 0, checked = began;
        for (long step = 0;; ++step) {
            if (step % 256 == 0) {
                const double now = now_s(), part = (now - began) / seconds;
                if (part >= 1 || now >= deadline) return;
                temperature = from * std::pow(to / from, part);
                if (now - checked > seconds / 1000) {
                    checked = now;
                    weight *= state.overflow > 0 ? 1.03 : part < 0.8 ? 0.99 : 1.0;
                }
                if (part > 0.3 && region_seconds < 0.4 * (now - began)) {
                    solve_region(temperature);
                    region_seconds += now_s() - now;
                }
            }
            const double allowed = -temperature * std::log(random.unit());
            const auto [node, strategy] = pick();
            const double change = static_cast<double>(state.change(node, strategy));
            if (change < HARD / 2 && (change <= allowed || state.overflow > 0) &&
                change + weight * static_cast<double>(state.spill(node, strategy)) <= allowed) {
                state.set(node, strategy);
                offer();
            } else if (random.below(4) == 0) {
                ripple(node, strategy, allowed);
            }
        }
    }

    void change_to(int node, int strategy) {
        undo.emplace_back(node, state.chosen[node]);
        state.set(node, strategy);
    }

    // Keeps what was done since `undo` was empty, if it is worth it.
    bool settle(double before, double allowed) {
        if (value() - before <= allowed) {
            offer();
            return true;
        }
        while (!undo.empty()) {
            state.set(undo.back().first, undo.back().second);
            undo.pop_back();
        }
        return false;
    }

    void ripple(int first, int strategy, double allowed) {
        const double before = value();
        undo.clear();
        ++stamp;
        mark[first] = stamp;
        change_to(first, strategy);
        for (size_t at = 0; at < undo.size() && undo.size() < MOST_RIPPLE; ++at) {
            const auto [node, was] = undo[at];
            const auto arcs = model.arcs_of(node);
            if (arcs.size() > HUB) continue;
            for (const auto &arc : arcs) {
                const int other = arc.to, its = state.chosen[other];
                if (arc.width < 2 || mark[other] == stamp) continue;
                const i64 *costs = arc.cost + its;
                if (costs[static_cast<size_t>(state.chosen[node]) * arc.width] <= costs[static_cast<size_t>(was) * arc.width]) continue;
                const i64 *of = &state.local[model.first[other]];
                const int least = static_cast<int>(std::min_element(of, of + arc.width) - of);
                if (of[least] >= of[its]) continue;
                mark[other] = stamp;
                change_to(other, least);
                if (undo.size() >= MOST_RIPPLE) break;
            }
        }
        settle(before, allowed);
    }

    // A random connected part, at its best for some price of memory where there is little left.
    void solve_region(double temperature) {
        constexpr int LARGE = 60;  // neighbours from which on a node is a hub, and seldom a part
        ++stamp;
        std::vector<int> nodes{model.free[random.below(model.free.size())]};
        mark[nodes[0]] = stamp;
        const size_t most = 5 + random.below(60);
        const bool hubs = random.below(4) == 0;
        for (size_t at = 0; at < nodes.size() && nodes.size() < most; ++at) {
            std::swap(nodes[at], nodes[at + random.below(std::min<size_t>(nodes.size() - at, 6))]);
            const auto arcs = model.arcs_of(nodes[at]);
            if (arcs.empty()) continue;
            const size_t offset = random.below(arcs.size()), tried = arcs.size() > LARGE ? 20 : arcs.size();
            for (size_t index = 0; index < tried && nodes.size() < most; ++index) {
                const auto &arc = arcs[(index + offset) % arcs.size()];
                if (mark[arc.to] == stamp || arc.width < 2 || random.below(10) == 0) continue;
                if (!hubs && model.arcs_of(arc.to).size() > LARGE) continue;
                mark[arc.to] = stamp;
                nodes.push_back(arc.to);
            }
        }
        std::vector<double> paid(model.points + 1);  // the price of a byte up to each time point
        const double price = random.below(3) ? weight * std::pow(10.0, -3 * random.unit()) : 0;
        if (price > 0)
            for (int point = 0; point < model.points; ++point)
                paid[point + 1] = paid[point] + (state.excess(point) > -model.reduced.room[point] / 300 ? price : 0);
        std::vector<std::vector<double>> cost;
        for (int node : nodes) {
            const i64 *of = &state.local[model.first[node]];
            std::vector<double> own(of, of + model.width(node));
            for (const auto &arc : model.arcs_of(node))
                if (mark[arc.to] == stamp)
                    for (size_t strategy = 0; strategy < own.size(); ++strategy)
                        own[strategy] -= static_cast<double>(arc.cost[strategy * arc.width + state.chosen[arc.to]]);
            for (const auto &span : model.spans_of(node))
                if (const double rate = paid[span.end] - paid[span.begin]; rate > 0)
                    for (size_t strategy = 0; strategy < own.size(); ++strategy) own[strategy] += rate * static_cast<double>(span.usage[strategy]);
            cost.push_back(std::move(own));
        }
        const std::vector<int> chosen = region.solve(nodes, std::move(cost), state);
        const double before = value();
        undo.clear();
        for (size_t at = 0; at < nodes.size(); ++at)
            if (chosen[at] != state.chosen[nodes[at]]) change_to(nodes[at], chosen[at]);
        if (!undo.empty()) settle(before, -temperature * std::log(random.unit()));
    }
};
