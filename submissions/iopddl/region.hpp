// The best strategies for a part of the nodes while all others stay as they are: exact, by eliminating node after node.
//
// A node is eliminated by a table that says, for each choice of its neighbours, what it costs at least. Where a table
// would become too large, one of the nodes is left as it is, and with it out of the way the others go on. Memory is no
// part of this: it enters as a price on every strategy.

#pragma once

#include <cmath>
#include <cstdint>

#include "state.hpp"

class Region {
  public:
    Region(const Model &model, double most_entries) : model(model), most_entries(most_entries), place(model.size(), -1) {}

    // The least sum of `cost[i][s]` and of the edges inside, for these nodes. `cost` must have the edges to outside.
    // Returns a strategy for each.
    std::vector<int> solve(const std::vector<int> &nodes, std::vector<std::vector<double>> cost, const State &state) {
        const int count = static_cast<int>(nodes.size());
        start(nodes, std::move(cost), state);
        for (int left = count; left > 0; --left) {
            int next = -1;
            double least = 0;
            for (int at = 0; at < count; ++at)
                if (!done[at])
                    if (double size = entries(at); next < 0 || size < least) next = at, least = size;
            if (least > most_entries) fix(next = largest(next), state.chosen[nodes[next]]);
            else eliminate(next);
        }
        std::vector<int> chosen(count);
        for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
            size_t index = 0;
            for (int other : step->scope) index = index * widths[other] + chosen[other];
            chosen[step->node] = step->best[index];
        }
        for (int node : nodes) place[node] = -1;
        return chosen;
    }

  private:
    struct Factor {
        std::vector<int> scope;  // ascending; the last one's strategies lie side by side
        std::vector<double> table;
    };
    struct Step {
        int node;
        std::vector<int> scope;
        std::vector<std::uint16_t> best;
    };
    const Model &model;
    double most_entries;
    std::vector<int> place;  // of a node in the region, or -1
    std::vector<int> widths;
    std::vector<char> done;
    std::vector<Factor> factors;
    std::vector<std::vector<int>> of;  // the factors of each node
    std::vector<std::vector<int>> beside;  // the nodes that it shares factors with, ascending
    std::vector<Step> steps;

    void start(const std::vector<int> &nodes, std::vector<std::vector<double>> cost, const State &) {
        const int count = static_cast<int>(nodes.size());
        widths.assign(count, 0);
        done.assign(count, 0);
        of.assign(count, {});
        beside.assign(count, {});
        factors.clear();
        steps.clear();
        for (int at = 0; at < count; ++at) {
            place[nodes[at]] = at;
            widths[at] = model.width(nodes[at]);
            of[at].push_back(at);
            factors.push_back({{at}, std::move(cost[at])});
        }
        for (int at = 0; at < count; ++at)
            for (const auto &arc : model.arcs_of(nodes[at]))
                if (const int other = place[arc.to]; other > at) {
                    const size_t size = static_cast<size_t>(widths[at]) * widths[other];
                    add({{at, other}, std::vector<double>(arc.cost, arc.cost + size)});
                }
    }

    void add(Factor factor) {
        for (int at : factor.scope) {
            of[at].push_back(static_cast<int>(factors.size()));
            for (int other : factor.scope)
                if (other != at) {
                    auto where = std::lower_bound(beside[at].begin(), beside[at].end(), other);
                    if (where == beside[at].end() || *where != other) beside[at].insert(where, other);
                }
        }
        factors.push_back(std::move(factor));
    }

    double entries(int at) const {
        double size = widths[at];
        for (int other : beside[at]) size *= widths[other];
        return size;
    }

    // Of a node and its neighbours the one with the most strategies.
    int largest(int at) const {
        for (int other : std::vector<int>(beside[at]))
            if (widths[other] > widths[at] || (widths[other] == widths[at] && beside[other].size() > beside[at].size())) at = other;
        return at;
    }

    void leave(int at) {
        done[at] = 1;
        for (int other : beside[at]) {
            auto &list = beside[other];
            list.erase(std::lower_bound(list.begin(), list.end(), at));
        }
    }

    void drop(int at, int factor) {
        for (int other : factors[factor].scope)
            if (other != at) std::erase(of[other], factor);
        factors[factor] = {};
    }

    void fix(int at, int strategy) {
        steps.push_back({at, {}, {static_cast<std::uint16_t>(strategy)}});
        leave(at);
        for (int number : of[at]) {
            Factor &factor = factors[number];
            const auto axis = std::find(factor.scope.begin(), factor.scope.end(), at) - factor.scope.begin();
            size_t inner = 1;
            for (size_t later = axis + 1; later < factor.scope.size(); ++later) inner *= widths[factor.scope[later]];
            const size_t width = widths[at], outer = factor.table.size() / inner / width;
            std::vector<double> sliced(outer * inner);
            for (size_t row = 0; row < outer; ++row)
                std::copy_n(factor.table.begin() + static_cast<std::ptrdiff_t>((row * width + strategy) * inner), inner, sliced.begin() + static_cast<std::ptrdiff_t>(row * inner));
            factor.table = std::move(sliced);
            factor.scope.erase(factor.scope.begin() + axis);
        }
        of[at].clear();
    }

    void eliminate(int at) {
        const std::vector<int> scope = beside[at];
        const int depth = static_cast<int>(scope.size()), width = widths[at];
        size_t size = 1;
        for (int other : scope) size *= widths[other];
        // Where each factor's entry moves with each node of the scope, and with this one.
        struct Cursor {
            const double *entry;
            std::vector<std::ptrdiff_t> strides;
            std::ptrdiff_t own;
        };
        std::vector<Cursor> cursors;
        for (int number : of[at]) {
            const Factor &factor = factors[number];
            Cursor cursor{factor.table.data(), std::vector<std::ptrdiff_t>(depth), 0};
            std::ptrdiff_t stride = 1;
            for (size_t axis = factor.scope.size(); axis-- > 0; stride *= widths[factor.scope[axis]]) {
                if (factor.scope[axis] == at) cursor.own = stride;
                else cursor.strides[std::lower_bound(scope.begin(), scope.end(), factor.scope[axis]) - scope.begin()] = stride;
            }
            cursors.push_back(std::move(cursor));
        }
        Step step{at, scope, std::vector<std::uint16_t>(size)};
        Factor made{scope, std::vector<double>(size)};
        std::vector<int> index(depth);
        std::vector<double> sums(width);
        for (size_t entry = 0; entry < size; ++entry) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (const Cursor &cursor : cursors)
                for (int strategy = 0; strategy < width; ++strategy) sums[strategy] += cursor.entry[strategy * cursor.own];
            const auto least = std::min_element(sums.begin(), sums.end());
            made.table[entry] = *least;
            step.best[entry] = static_cast<std::uint16_t>(least - sums.begin());
            for (int axis = depth - 1; axis >= 0; --axis) {
                const bool wraps = ++index[axis] == widths[scope[axis]];
                const std::ptrdiff_t by = wraps ? 1 - widths[scope[axis]] : 1;
                for (Cursor &cursor : cursors) cursor.entry += by * cursor.strides[axis];
                if (!wraps) break;
                index[axis] = 0;
            }
        }
        for (int number : std::vector<int>(of[at])) drop(at, number);
        of[at].clear();
        leave(at);
        steps.push_back(std::move(step));
        if (depth > 0) add(std::move(made));
    }
};
