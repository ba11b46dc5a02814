// The same problem with far fewer nodes: what the search works on.
//
// In graphs of tensor programs most nodes follow another one: once that one's strategy is chosen, only one of theirs is
// permitted. Such a node becomes a part of the one that it follows. Strategies that no neighbour permits are dropped,
// and so are those that another one beats in every surrounding; both make further nodes follow. Time points at which
// the memory limit cannot be reached, or at which no more is live than at another one, are dropped too.

#pragma once

#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "instance.hpp"

constexpr i64 FORBIDDEN = 100'000'000'000'000'000;  // what the contest's instances give pairs that are not permitted: 1e18
constexpr i64 HARD = i64{1} << 50;  // stands for it in sums: above the finite costs of an answer, with room for 2^12 of it

struct Link {
    int to;
    std::vector<i64> cost;  // [K_from][K_to]
};

struct Segment {
    int begin, end;  // time points, half-open
    std::vector<i64> usage;  // of each strategy
};

struct Node {
    std::vector<i64> cost;
    std::vector<Link> links;
    std::vector<Segment> segments;  // in order, not overlapping

    int size() const { return static_cast<int>(cost.size()); }
};

struct Reduced {
    std::vector<Node> nodes;
    std::vector<i64> room;  // limit less what fixed nodes use, at each time point
    std::vector<int> owner;  // of each node of the instance: its node here
    std::vector<std::vector<int>> image;  // its strategy for each strategy of the owner

    std::vector<int> expand(const std::vector<int> &chosen) const {
        std::vector<int> answer(owner.size());
        for (size_t node = 0; node < owner.size(); ++node) answer[node] = image[node][chosen[owner[node]]];
        return answer;
    }
};

class Presolve {
  public:
    explicit Presolve(const Instance &instance, bool hard = true) : instance(instance), hard(hard) {}

    Reduced run() {
        load();
        bool again = true;
        for (int round = 0; again && round < 6; ++round) {
            again = hard && arc_consistent();
            merge_followers();
            again |= drop_dominated();
        }
        return collected();
    }

  private:
    using Table = std::vector<i64>;
    struct Work {
        std::vector<i64> cost;
        std::map<int, Table> links;
        std::vector<int> strategies;  // which of the instance's are left
        std::vector<std::pair<int, std::vector<int>>> followers;  // with the strategy that each takes for each one here
        bool gone = false;
        size_t size() const { return cost.size(); }
    };
    const Instance &instance;
    bool hard;
    std::vector<Work> work;
    std::vector<std::pair<int, int>> live;  // of each node of the instance, in time points
    int points = 0;

    static i64 capped(i64 cost) { return cost >= FORBIDDEN ? HARD : std::min(cost, HARD / 2); }

    void load() {
        const int count = instance.size();
        work.resize(count);
        for (int node = 0; node < count; ++node) {
            for (i64 cost : instance.costs[node]) work[node].cost.push_back(capped(cost));
            work[node].strategies.resize(instance.costs[node].size());
            std::iota(work[node].strategies.begin(), work[node].strategies.end(), 0);
        }
        for (const Edge &edge : instance.edges) {
            const size_t rows = work[edge.u].size(), columns = work[edge.v].size();
            if (edge.u == edge.v) {
                for (size_t row = 0; row < rows; ++row)
                    work[edge.u].cost[row] = std::min(HARD, work[edge.u].cost[row] + capped(edge.cost[row * rows + row]));
                continue;
            }
            Table table(edge.cost.size());
            for (size_t index = 0; index < table.size(); ++index) table[index] = capped(edge.cost[index]);
            connect(edge.u, edge.v, table, rows, columns);
        }
        compress_time();
    }

    void connect(int u, int v, const Table &table, size_t rows, size_t columns) {
        Table &there = work[u].links[v], &back = work[v].links[u];
        there.resize(rows * columns);
        back.resize(rows * columns);
        for (size_t row = 0; row < rows; ++row)
            for (size_t column = 0; column < columns; ++column) {
                i64 &cost = there[row * columns + column];
                cost = std::min(HARD, cost + table[row * columns + column]);
                back[column * rows + row] = cost;
            }
    }

    // Of the time points only those stay at which something ends before anything else begins: the others have less.
    void compress_time() {
        std::vector<std::pair<i64, int>> events;  // 0: ends, 1: begins
        for (int node = 0; node < instance.size(); ++node)
            if (uses(node)) {
                events.emplace_back(instance.intervals[node].first, 1);
                events.emplace_back(instance.intervals[node].second, 0);
            }
        std::sort(events.begin(), events.end());
        std::vector<i64> last;  // the last beginning before each point
        for (size_t index = 0; index + 1 < events.size(); ++index)
            if (events[index].second == 1 && events[index + 1].second == 0) last.push_back(events[index].first);
        points = static_cast<int>(last.size());
        live.assign(instance.size(), {0, 0});
        for (int node = 0; node < instance.size(); ++node)
            if (uses(node)) {
                auto [begin, end] = instance.intervals[node];
                live[node].first = static_cast<int>(std::lower_bound(last.begin(), last.end(), begin) - last.begin());
                live[node].second = static_cast<int>(std::lower_bound(last.begin(), last.end(), end) - last.begin());
            }
    }
    bool uses(int node) const {
        const auto &usage = instance.usages[node];
        return instance.intervals[node].first < instance.intervals[node].second &&
               std::any_of(usage.begin(), usage.end(), [](i64 value) { return value != 0; });
    }

    // Keeps these strategies of a node.
    void keep(int node, const std::vector<char> &kept) {
        Work &self = work[node];
        const size_t before = self.size();
        auto filtered = [&](auto &values, size_t columns) {
            size_t to = 0;
            for (size_t row = 0; row < before; ++row)
                if (kept[row])
                    for (size_t column = 0; column < columns; ++column) values[to++] = values[row * columns + column];
            values.resize(to);
        };
        for (auto &[other, table] : self.links) {
            const size_t columns = work[other].size();
            filtered(table, columns);
            Table &back = work[other].links[node];
            size_t to = 0;
            for (size_t row = 0; row < columns; ++row)
                for (size_t column = 0; column < before; ++column)
                    if (kept[column]) back[to++] = back[row * before + column];
            back.resize(to);
        }
        filtered(self.cost, 1);
        filtered(self.strategies, 1);
        for (auto &[follower, taken] : self.followers) filtered(taken, 1);
    }

    // Drops what no neighbour permits. Whether anything was.
    bool arc_consistent() {
        bool changed = false;
        std::deque<int> queue;
        std::vector<char> queued(work.size(), 1);
        for (size_t node = 0; node < work.size(); ++node) queue.push_back(static_cast<int>(node));
        while (!queue.empty()) {
            const int node = queue.front();
            queue.pop_front();
            queued[node] = 0;
            Work &self = work[node];
            if (self.gone) continue;
            std::vector<char> kept(self.size());
            for (size_t row = 0; row < self.size(); ++row) kept[row] = self.cost[row] < HARD;
            for (const auto &[other, table] : self.links) {
                const size_t columns = work[other].size();
                for (size_t row = 0; row < self.size(); ++row)
                    if (kept[row]) {
                        auto begin = table.begin() + static_cast<std::ptrdiff_t>(row * columns);
                        kept[row] = std::any_of(begin, begin + static_cast<std::ptrdiff_t>(columns), [](i64 cost) { return cost < HARD; });
                    }
            }
            const auto left = std::count(kept.begin(), kept.end(), 1);
            if (left == static_cast<std::ptrdiff_t>(self.size()) || left == 0) continue;  // 0: not to be had without
            keep(node, kept);
            changed = true;
            for (const auto &[other, table] : self.links)
                if (!queued[other]) queued[other] = 1, queue.push_back(other);
        }
        return changed;
    }

    // For each strategy of `leader` the only one of `node` that it permits; empty where it permits several, or none.
    std::vector<int> followed(int leader, int node) const {
        const Table &table = work[leader].links.at(node);
        const size_t rows = work[leader].size(), columns = work[node].size();
        std::vector<int> only(rows, -1);
        for (size_t row = 0; row < rows; ++row) {
            for (size_t column = 0; column < columns; ++column)
                if (table[row * columns + column] < HARD) {
                    if (only[row] >= 0) return {};
                    only[row] = static_cast<int>(column);
                }
            if (only[row] < 0) return {};
        }
        return only;
    }

    // Merges nodes into those that they follow. A pair of neighbours is looked at again where its costs have changed.
    void merge_followers() {
        std::deque<std::pair<int, int>> queue;
        for (size_t node = 0; node < work.size(); ++node) {
            if (work[node].size() == 1 && !work[node].gone) settle(static_cast<int>(node));
            for (const auto &[other, table] : work[node].links) queue.emplace_back(other, static_cast<int>(node));
        }
        while (!queue.empty()) {
            const auto [leader, node] = queue.front();
            queue.pop_front();
            if (work[leader].gone || work[node].gone || !work[leader].links.count(node)) continue;
            std::vector<int> strategies = followed(leader, node);
            if (strategies.empty()) continue;
            std::vector<int> moved;
            for (const auto &[other, table] : work[node].links)
                if (other != leader) moved.push_back(other);
            absorb(leader, node, std::move(strategies));
            for (int other : moved) {
                queue.emplace_back(leader, other);
                queue.emplace_back(other, leader);
            }
        }
    }

    // A node without a choice: its costs become its neighbours'.
    void settle(int node) {
        for (auto &[other, table] : work[node].links) {
            for (size_t column = 0; column < work[other].size(); ++column)
                work[other].cost[column] = std::min(HARD, work[other].cost[column] + table[column]);
            work[other].links.erase(node);
        }
        work[node].links.clear();
    }

    void absorb(int leader, int node, std::vector<int> strategies) {
        Work &to = work[leader], &from = work[node];
        const Table pair = std::move(to.links[node]);
        const size_t columns = from.size();
        to.links.erase(node);
        from.links.erase(leader);
        for (size_t row = 0; row < to.size(); ++row)
            to.cost[row] = std::min(HARD, to.cost[row] + from.cost[strategies[row]] + pair[row * columns + strategies[row]]);
        for (auto &[other, table] : from.links) {
            const size_t width = work[other].size();
            Table moved(to.size() * width);
            for (size_t row = 0; row < to.size(); ++row)
                std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(strategies[row] * width), width, moved.begin() + static_cast<std::ptrdiff_t>(row * width));
            work[other].links.erase(node);
            connect(leader, other, moved, to.size(), width);
        }
        from.gone = true;
        from.links.clear();
        from.cost.clear();
        to.followers.emplace_back(node, std::move(strategies));
    }

    // Calls `visit` with every node of the instance that is a part of this one, and its strategy for each one here.
    template <class Visit> void each_member(int node, const std::vector<int> &taken, Visit visit) const {
        const Work &self = work[node];
        std::vector<int> image(taken.size());
        for (size_t row = 0; row < taken.size(); ++row) image[row] = self.strategies[taken[row]];
        visit(node, image);
        for (const auto &[follower, follows] : self.followers) {
            std::vector<int> its(taken.size());
            for (size_t row = 0; row < taken.size(); ++row) its[row] = follows[taken[row]];
            each_member(follower, its, visit);
        }
    }
    template <class Visit> void each_member(int node, Visit visit) const {
        std::vector<int> all(work[node].size());
        std::iota(all.begin(), all.end(), 0);
        each_member(node, all, visit);
    }

    // The usage of a node's members over time.
    std::vector<Segment> segments_of(int node) const {
        std::vector<int> cuts;
        const size_t width = work[node].size();
        each_member(node, [&](int member, const std::vector<int> &) {
            if (live[member].first < live[member].second) {
                cuts.push_back(live[member].first);
                cuts.push_back(live[member].second);
            }
        });
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        if (cuts.empty()) return {};
        std::vector<std::vector<i64>> change(cuts.size(), std::vector<i64>(width));
        each_member(node, [&](int member, const std::vector<int> &image) {
            if (live[member].first >= live[member].second) return;
            auto at = [&](int time) { return std::lower_bound(cuts.begin(), cuts.end(), time) - cuts.begin(); };
            auto &up = change[at(live[member].first)], &down = change[at(live[member].second)];
            for (size_t strategy = 0; strategy < width; ++strategy) {
                const i64 usage = instance.usages[member][image[strategy]];
                up[strategy] += usage;
                down[strategy] -= usage;
            }
        });
        std::vector<Segment> found;
        std::vector<i64> now(width);
        for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
            bool moved = false;
            for (size_t strategy = 0; strategy < width; ++strategy) {
                moved |= change[cut][strategy] != 0;
                now[strategy] += change[cut][strategy];
            }
            if (!moved && !found.empty()) found.back().end = cuts[cut + 1];
            else found.push_back({cuts[cut], cuts[cut + 1], now});
        }
        std::erase_if(found, [](const Segment &one) {
            return std::all_of(one.usage.begin(), one.usage.end(), [](i64 value) { return value == 0; });
        });
        return found;
    }

    // Drops strategies that another one of the node beats whatever is chosen elsewhere. Whether anything was.
    bool drop_dominated() {
        constexpr double MOST_WORK = 2e8;  // comparisons, for one node
        bool changed = false;
        for (size_t node = 0; node < work.size(); ++node) {
            Work &self = work[node];
            const size_t width = self.size();
            if (self.gone || width < 2) continue;
            double columns = 1;
            for (const auto &[other, table] : self.links) columns += static_cast<double>(work[other].size());
            if (columns * static_cast<double>(width * width) > MOST_WORK) continue;
            const auto segments = segments_of(static_cast<int>(node));
            std::vector<char> kept(width, 1);
            for (size_t loser = 0; loser < width; ++loser)
                for (size_t winner = 0; winner < width && kept[loser]; ++winner)
                    if (winner != loser && kept[winner] && beats(self, segments, winner, loser)) kept[loser] = 0;
            if (std::count(kept.begin(), kept.end(), 1) < static_cast<std::ptrdiff_t>(width)) {
                keep(static_cast<int>(node), kept);
                changed = true;
            }
        }
        return changed;
    }

    bool beats(const Work &self, const std::vector<Segment> &segments, size_t winner, size_t loser) const {
        for (const Segment &one : segments)
            if (one.usage[winner] > one.usage[loser]) return false;
        i64 worst = self.cost[winner] - self.cost[loser];
        for (const auto &[other, table] : self.links) {
            const size_t columns = work[other].size();
            const i64 *with = &table[winner * columns], *without = &table[loser * columns];
            i64 most = -HARD;
            for (size_t column = 0; column < columns; ++column)
                if (without[column] < HARD) most = std::max(most, with[column] - without[column]);
            worst += most;
            if (worst >= HARD / 2) return false;
        }
        return worst <= 0;
    }

    Reduced collected() {
        Reduced made;
        std::vector<int> number(work.size(), -1);
        std::vector<std::vector<Segment>> segments;
        std::vector<i64> most(points), fixed(points);
        for (size_t node = 0; node < work.size(); ++node)
            if (!work[node].gone) {
                if (work[node].size() == 1) settle(static_cast<int>(node));
                number[node] = static_cast<int>(segments.size());
                segments.push_back(segments_of(static_cast<int>(node)));
                for (const Segment &one : segments.back())
                    for (int point = one.begin; point < one.end; ++point) {
                        most[point] += *std::max_element(one.usage.begin(), one.usage.end());
                        if (one.usage.size() == 1) fixed[point] += one.usage[0];
                    }
            }
        std::vector<int> moved(points + 1);  // where each time point that stays has gone
        for (int point = 0; point < points; ++point) {
            moved[point + 1] = moved[point] + (most[point] > instance.limit);
            if (most[point] > instance.limit) made.room.push_back(instance.limit - fixed[point]);
        }
        for (size_t node = 0; node < work.size(); ++node) {
            if (work[node].gone) continue;
            Node self;
            self.cost = work[node].cost;
            for (auto &[other, table] : work[node].links) self.links.push_back({number[other], std::move(table)});
            for (Segment &one : segments[number[node]]) {
                one.begin = moved[one.begin];
                one.end = moved[one.end];
                if (one.begin < one.end && one.usage.size() > 1) self.segments.push_back(std::move(one));
            }
            made.nodes.push_back(std::move(self));
        }
        made.owner.resize(work.size());
        made.image.resize(work.size());
        for (size_t node = 0; node < work.size(); ++node)
            if (!work[node].gone)
                each_member(static_cast<int>(node), [&](int member, const std::vector<int> &image) {
                    made.owner[member] = number[node];
                    made.image[member] = image;
                });
        return made;
    }
};
