// An assignment of strategies with everything that a change of one of them needs to be judged in little time.

#pragma once

#include "reduced.hpp"

// The reduced problem in flat arrays, shared by all threads.
struct Model {
    struct Arc {
        int to, width;
        const i64 *cost;  // [K_from][K_to]
    };
    struct Span {
        int begin, end;
        const i64 *usage;
    };
    const Reduced &reduced;
    std::vector<int> first;  // of each node's strategies in flat arrays; one more at the end
    std::vector<int> arc_first, span_first;
    std::vector<Arc> arcs;
    std::vector<Span> spans;
    std::vector<int> free;  // nodes that have a choice
    int points;

    explicit Model(const Reduced &from) : reduced(from), points(static_cast<int>(from.room.size())) {
        for (const Node &node : from.nodes) {
            first.push_back(first.empty() ? 0 : first.back() + from.nodes[first.size() - 1].size());
            arc_first.push_back(static_cast<int>(arcs.size()));
            span_first.push_back(static_cast<int>(spans.size()));
            for (const Link &link : node.links) arcs.push_back({link.to, from.nodes[link.to].size(), link.cost.data()});
            for (const Segment &one : node.segments) spans.push_back({one.begin, one.end, one.usage.data()});
            if (node.size() > 1) free.push_back(static_cast<int>(first.size()) - 1);
        }
        first.push_back(first.empty() ? 0 : first.back() + from.nodes.back().size());
        arc_first.push_back(static_cast<int>(arcs.size()));
        span_first.push_back(static_cast<int>(spans.size()));
    }
    int size() const { return static_cast<int>(reduced.nodes.size()); }
    int width(int node) const { return first[node + 1] - first[node]; }
    std::span<const Arc> arcs_of(int node) const {
        return {arcs.data() + arc_first[node], static_cast<size_t>(arc_first[node + 1] - arc_first[node])};
    }
    std::span<const Span> spans_of(int node) const {
        return {spans.data() + span_first[node], static_cast<size_t>(span_first[node + 1] - span_first[node])};
    }
};

class State {
  public:
    const Model &model;
    std::vector<int> chosen;
    std::vector<i64> local;  // cost and toll of each strategy of each node, given its neighbours
    i64 cost = 0, paid = 0, overflow = 0;  // cost: with tolls; paid: the tolls; overflow: summed over time points

    State(const Model &model, std::vector<int> start)
        : model(model), chosen(std::move(start)), local(model.first.back()), toll(model.first.back()), load(model.points), shared((model.points + BLOCK - 1) / BLOCK), peak(shared.size()) {
        reset(chosen);
    }

    // Adds the price of what a strategy uses, at each time point, to its cost. A reset must follow.
    void charge(const std::vector<double> &price) {
        std::vector<double> until(model.points + 1);
        for (int point = 0; point < model.points; ++point) until[point + 1] = until[point] + price[point];
        for (int node = 0; node < model.size(); ++node)
            for (int strategy = 0; strategy < model.width(node); ++strategy) {
                double sum = 0;
                for (const auto &span : model.spans_of(node)) sum += (until[span.end] - until[span.begin]) * static_cast<double>(span.usage[strategy]);
                toll[model.first[node] + strategy] = static_cast<i64>(std::min(sum, static_cast<double>(HARD / 4)));
            }
    }

    void reset(const std::vector<int> &start) {
        chosen = start;
        cost = paid = overflow = 0;
        for (int point = 0; point < model.points; ++point) load[point] = -model.reduced.room[point];
        std::fill(shared.begin(), shared.end(), 0);
        i64 doubled = 0;
        for (int node = 0; node < model.size(); ++node) {
            const auto &own = model.reduced.nodes[node].cost;
            i64 *to = &local[model.first[node]];
            for (int strategy = 0; strategy < model.width(node); ++strategy) to[strategy] = own[strategy] + toll[model.first[node] + strategy];
            const i64 alone = to[chosen[node]];
            paid += toll[model.first[node] + chosen[node]];
            for (const auto &arc : model.arcs_of(node))
                for (int strategy = 0; strategy < model.width(node); ++strategy)
                    to[strategy] += arc.cost[static_cast<size_t>(strategy) * arc.width + chosen[arc.to]];
            cost += alone;
            doubled += to[chosen[node]] - alone;
            for (const auto &span : model.spans_of(node))
                for (int point = span.begin; point < span.end; ++point) load[point] += span.usage[chosen[node]];
        }
        cost += doubled / 2;
        for (int point = 0; point < model.points; ++point) overflow += std::max<i64>(0, load[point]);
        for (int block = 0; block < static_cast<int>(peak.size()); ++block) find_peak(block);
    }

    // By how much the limit is exceeded at a time point; negative where there is room.
    i64 excess(int point) const { return load[point] + shared[point / BLOCK]; }

    // What a change would add to cost and tolls.
    i64 change(int node, int strategy) const {
        const i64 *of = &local[model.first[node]];
        return of[strategy] - of[chosen[node]];
    }

    // What a change would add to the overflow.
    i64 spill(int node, int strategy) const {
        i64 total = 0;
        for (const auto &span : model.spans_of(node)) {
            const i64 more = span.usage[strategy] - span.usage[chosen[node]];
            if (more == 0) continue;
            for (int block = span.begin / BLOCK; block * BLOCK < span.end; ++block)
                if (peak[block] + std::max<i64>(0, more) > 0)
                    total += spilled(block, std::max(span.begin, block * BLOCK), std::min(span.end, (block + 1) * BLOCK), more);
        }
        return total;
    }

    void set(int node, int strategy) {
        const int before = chosen[node];
        cost += change(node, strategy);
        paid += toll[model.first[node] + strategy] - toll[model.first[node] + before];
        for (const auto &span : model.spans_of(node)) {
            const i64 more = span.usage[strategy] - span.usage[before];
            if (more == 0) continue;
            for (int block = span.begin / BLOCK; block * BLOCK < span.end; ++block) {
                const int begin = std::max(span.begin, block * BLOCK), end = std::min(span.end, (block + 1) * BLOCK);
                if (peak[block] + std::max<i64>(0, more) > 0) overflow += spilled(block, begin, end, more);
                if (end - begin == BLOCK) {  // all of it: its points' loads stay as they are
                    shared[block] += more;
                    peak[block] += more;
                } else {
                    for (int point = begin; point < end; ++point) load[point] += more;
                    find_peak(block);
                }
            }
        }
        for (const auto &arc : model.arcs_of(node)) {
            const i64 *with = arc.cost + static_cast<size_t>(strategy) * arc.width;
            const i64 *without = arc.cost + static_cast<size_t>(before) * arc.width;
            i64 *to = &local[model.first[arc.to]];
            for (int index = 0; index < arc.width; ++index) to[index] += with[index] - without[index];
        }
        chosen[node] = strategy;
    }

  private:
    static constexpr int BLOCK = 64;
    std::vector<i64> toll;  // of each strategy of each node
    // A time point's load is above 0 where the limit is exceeded, by how much: its own part and its block's.
    std::vector<i64> load, shared, peak;  // peak: the largest of each block

    void find_peak(int block) {
        const int begin = block * BLOCK, end = std::min(model.points, begin + BLOCK);
        i64 most = load[begin];
        for (int point = begin + 1; point < end; ++point) most = std::max(most, load[point]);
        peak[block] = most + shared[block];
    }

    i64 spilled(int block, int begin, int end, i64 more) const {
        i64 total = 0;
        for (int point = begin; point < end; ++point) {
            const i64 now = load[point] + shared[block];
            total += std::max<i64>(0, now + more) - std::max<i64>(0, now);
        }
        return total;
    }
};
