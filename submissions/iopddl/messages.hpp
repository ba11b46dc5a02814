// A lower bound of the cost without the memory limit, and an answer that often comes near it: sequential tree-reweighted
// message passing (V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", 2006).
//
// Nodes are visited in order and back. Each sends along every edge ahead what its choice is worth to the neighbour, with
// its own costs shared out over its edges. With a price on every byte at every time point, and what the limit is worth
// at those prices taken off, the bound is one of the problem with the limit: a Lagrangian relaxation.

#pragma once

#include <cmath>
#include <map>

#include "state.hpp"

class Messages {
  public:
    std::vector<double> price;  // of a byte at each time point
    std::vector<int> chosen;  // the answer of the last pass
    std::vector<double> excess;  // by how much the last pass would exceed the limit at each time point

    explicit Messages(const Model &model) : price(model.points), chosen(model.size()), excess(model.points), model(model), back(model.arcs.size()), first(model.arcs.size()), cost(model.first.back()) {
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
        for (int node = 0; node < model.size(); ++node)
            for (const auto &arc : model.arcs_of(node)) {
                table_first.push_back(table.size());
                table.insert(table.end(), arc.cost, arc.cost + static_cast<size_t>(model.width(node)) * arc.width);
            }
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

    // One pass there and back. Returns a lower bound of every answer's cost. Strategies within `blur` of a node's best
    // share in what it would use.
    double pass(double blur) {
        double bound = -worth;
        for (int node = 0; node < model.size(); ++node) {
            decide(node);
            visit(node, true);
        }
        std::vector<double> change(model.points + 1);
        for (int node = model.size(); node-- > 0;) {
            bound += visit(node, false);
            if (model.spans_of(node).empty()) continue;
            double all = 0;
            for (double &sum : sums) all += sum = sum < 30 * blur ? std::exp(-sum / blur) : 0;
            for (const auto &span : model.spans_of(node)) {
                double used = 0;
                for (int strategy = 0; strategy < model.width(node); ++strategy) used += sums[strategy] * static_cast<double>(span.usage[strategy]);
                change[span.begin] += used / all;
                change[span.end] -= used / all;
            }
        }
        double used = 0;
        for (int point = 0; point < model.points; ++point) excess[point] = (used += change[point]) - static_cast<double>(model.reduced.room[point]);
        return bound;
    }

  private:
    const Model &model;
    std::vector<int> back;  // the arc of the other direction
    std::vector<size_t> first;  // where the message that comes in by each arc begins in `into`
    std::vector<size_t> table_first;  // where each arc's costs begin in `table`
    std::vector<double> table, into, cost, sums, sent;
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
                const double *row = &table[table_first[arc] + static_cast<size_t>(strategy) * to.width];
                for (int its = 0; its < to.width; ++its) sent[its] = std::min(sent[its], own + row[its]);
            }
            const double least = *std::min_element(sent.begin(), sent.end());
            for (int its = 0; its < to.width; ++its) into[first[back[arc]] + its] = sent[its] - least;
            added += least;
        }
        return added;
    }
};
