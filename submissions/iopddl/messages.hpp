// A lower bound of the cost without the memory limit, and an answer that often comes near it: sequential tree-reweighted
// message passing (V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", 2006).
//
// Nodes are visited in order and back. Each sends along every edge ahead what its choice is worth to the neighbour, with
// its own costs shared out over its edges. With a price on every byte at every time point, and what the limit is worth
// at those prices taken off, the bound is one of the problem with the limit: a Lagrangian relaxation.

#pragma once

#include <map>

#include "state.hpp"

class Messages {
  public:
    std::vector<double> price;  // of a byte at each time point
    std::vector<int> chosen;  // the answer of the last pass

    explicit Messages(const Model &model) : price(model.points), chosen(model.size()), model(model), back(model.arcs.size()), first(model.arcs.size()), cost(model.first.back()) {
        std::map<std::pair<int, int>, int> number;
        size_t size = 0;
        for (int node = 0; node < model.size(); ++node)
            for (int arc = model.arc_first[node]; arc < model.arc_first[node + 1]; ++arc) {
                number[{node, model.arcs[arc].to}] = arc;
                first[arc] = size;
                size += model.width(node);
            }
        for (const auto &[ends, arc] : number) back[arc] = number.at({ends.second, ends.first});
        into.resize(size);
        reprice();
    }

    // Takes the prices as they are now into every strategy's cost.
    void reprice() {
        std::vector<double> paid(model.points + 1);
        worth = 0;
        for (int point = 0; point < model.points; ++point) {
            paid[point + 1] = paid[point] + price[point];
            worth += price[point] * static_cast<double>(model.reduced.room[point]);
        }
        for (int node = 0; node < model.size(); ++node) {
            const auto &own = model.reduced.nodes[node].cost;
            double *to = &cost[model.first[node]];
            std::copy(own.begin(), own.end(), to);
            for (const auto &span : model.spans_of(node))
                if (const double rate = paid[span.end] - paid[span.begin]; rate > 0)
                    for (int strategy = 0; strategy < model.width(node); ++strategy) to[strategy] += rate * static_cast<double>(span.usage[strategy]);
        }
    }

    // One pass there and back. Returns a lower bound of every answer's cost.
    double pass() {
        double bound = -worth;
        for (int node = 0; node < model.size(); ++node) {
            decide(node);
            visit(node, true);
        }
        for (int node = model.size(); node-- > 0;) bound += visit(node, false);
        return bound;
    }

  private:
    const Model &model;
    std::vector<int> back;  // the arc of the other direction
    std::vector<size_t> first;  // where the message that comes in by each arc begins in `into`
    std::vector<double> into, cost, sums, sent;
    double worth = 0;

    // The best strategy beside the nodes before, which have decided, and by the messages of those behind.
    void decide(int node) {
        const int width = model.width(node);
        sums.assign(&cost[model.first[node]], &cost[model.first[node]] + width);
        for (int arc = model.arc_first[node]; arc < model.arc_first[node + 1]; ++arc) {
            const auto &to = model.arcs[arc];
            for (int strategy = 0; strategy < width; ++strategy)
                sums[strategy] += to.to < node ? static_cast<double>(to.cost[static_cast<size_t>(strategy) * to.width + chosen[to.to]])
                                               : into[first[arc] + strategy];
        }
        chosen[node] = static_cast<int>(std::min_element(sums.begin(), sums.end()) - sums.begin());
    }

    // Sends along the edges ahead. Returns what that adds to the bound, on the way back.
    double visit(int node, bool forward) {
        const int width = model.width(node);
        int before = 0, behind = 0;
        sums.assign(&cost[model.first[node]], &cost[model.first[node]] + width);
        for (int arc = model.arc_first[node]; arc < model.arc_first[node + 1]; ++arc) {
            ++(model.arcs[arc].to < node ? before : behind);
            for (int strategy = 0; strategy < width; ++strategy) sums[strategy] += into[first[arc] + strategy];
        }
        const double share = 1.0 / std::max({1, before, behind});
        double added = *std::min_element(sums.begin(), sums.end());
        for (double &sum : sums) sum -= added;
        for (int arc = model.arc_first[node]; arc < model.arc_first[node + 1]; ++arc) {
            const auto &to = model.arcs[arc];
            if ((to.to > node) != forward) continue;
            sent.assign(to.width, std::numeric_limits<double>::max());
            for (int strategy = 0; strategy < width; ++strategy) {
                const double own = share * sums[strategy] - into[first[arc] + strategy];
                const i64 *row = to.cost + static_cast<size_t>(strategy) * to.width;
                for (int its = 0; its < to.width; ++its) sent[its] = std::min(sent[its], own + static_cast<double>(row[its]));
            }
            const double least = *std::min_element(sent.begin(), sent.end());
            for (int its = 0; its < to.width; ++its) into[first[back[arc]] + its] = sent[its] - least;
            added += least;
        }
        return added;
    }
};
