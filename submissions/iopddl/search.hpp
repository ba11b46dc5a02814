// Simulated annealing on the reduced problem, in several threads that share the best answer.
//
// What is minimised is cost + weight * overflow. The weight follows the walk: it grows while the memory limit is broken
// and shrinks while it is not, so that it comes to lie near the price that memory has. Three kinds of moves: one node;
// one node with neighbours that then have something better (a ripple); and, once it has cooled, the exact optimum of a
// region of nodes (region.hpp). Every run but the first of a thread begins either anew, or warm from the best answer.

#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "messages.hpp"
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

// The best answer that any thread has found.
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
    std::atomic<i64> least{std::numeric_limits<i64>::max()};
    std::atomic<int> version{0};
    std::atomic<double> bound{0};  // no answer costs less, as far as message passing has shown

  private:
    std::mutex mutex;
    std::vector<int> answer;
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
        const double began = now_s(), all = deadline - began;
        double share = 0.07;  // of the time, for the next run
        for (int number = 0; now_s() < deadline; ++number) {
            const double left = deadline - now_s();
            const double most = std::max(4.0, 0.004 * model.first.back());  // longer does a small instance no good
            const bool warm = number % 3 == 2;  // in small instances, whose runs are short
            double seconds = std::min({left, most, share * all});
            if (left - seconds < 0.5 * seconds) seconds = left;
            share = 1;  // one long run cools slowest; the short one before it is there for the anytime curve
            std::vector<int> start;
            if (warm && best.take(start) < std::numeric_limits<i64>::max()) state.reset(start);
            anneal(warm ? hot / 100 : hot, hot * 1e-6, now_s(), seconds);
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
    static constexpr int SMALL = 5000;  // strategies, below which runs from anew do better than warm ones

    // Message passing, with prices of memory that follow a subgradient. Now and then its answer is the start of a short
    // warm run, which also makes it fit. In what time is left, warm runs begin with the best answer.
    void relax() {
        const double began = now_s(), all = deadline - began;
        Messages messages(model);
        State tried(model, messages.chosen);
        double bound = 0, stale = 0, next = began + 0.03 * all, step = 1;
        std::vector<int> nearest;
        for (int pass = 0; now_s() < began + 0.5 * all && step > 1e-3; ++pass) {
            const double found = messages.pass();
            stale = found > bound * (1 + 1e-5) ? 0 : stale + 1;
            bound = std::max(bound, found);
            best.bound = bound;
            if (stale > 15) stale = 0, step *= 0.7;
            if (pass < 10) continue;
            tried.reset(messages.chosen);
            const double reached = static_cast<double>(best.least.load());
            const double distance = std::min(reached < 1e300 ? reached - found : found, 0.3 * std::abs(found) + 1);
            double square = 0;
            for (int point = 0; point < model.points; ++point)
                if (const double excess = static_cast<double>(tried.excess(point)); excess > 0 || messages.price[point] > 0) square += excess * excess;
            if (square > 0)
                for (int point = 0; point < model.points; ++point)
                    messages.price[point] = std::max(0.0, messages.price[point] + step * std::max(distance, 0.0) / square * static_cast<double>(tried.excess(point)));
            messages.reprice();
            if (now_s() > next) {
                state.reset(messages.chosen);
                const double dearest = *std::max_element(messages.price.begin(), messages.price.end());
                if (dearest > 0) weight = 1.5 * dearest;  // less would not make it fit, more would keep it from moving
                anneal(hot * 1e-3, hot * 1e-6, now_s(), 0.04 * all);
                next = now_s() + 0.06 * all;
            }
        }
        if (!model.points || model.first.back() < SMALL) return;
        const double dearest = *std::max_element(messages.price.begin(), messages.price.end());
        while (now_s() < deadline) {
            std::vector<int> start;
            if (best.take(start) == std::numeric_limits<i64>::max()) start = messages.chosen;
            state.reset(start);
            if (dearest > 0) weight = 1.5 * dearest;
            anneal(hot * std::pow(10.0, -2 - 2 * random.unit()), hot * 1e-6, now_s(), std::max(5.0, 0.12 * all));
        }
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
        if (state.overflow == 0) best.offer(state.cost, state.chosen);
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
