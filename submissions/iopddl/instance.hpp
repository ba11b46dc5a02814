// An instance as its file has it, and what an answer costs: exact, on the original tables.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

using i64 = std::int64_t;
using i128 = __int128;

struct Edge {
    int u, v;
    std::vector<i64> cost;  // [K_u][K_v], row-major
};

struct Instance {
    std::vector<std::pair<i64, i64>> intervals;  // half-open
    std::vector<std::vector<i64>> costs, usages;  // [node][strategy]
    std::vector<Edge> edges;
    i64 limit = 0;

    int size() const { return static_cast<int>(costs.size()); }

    // The cost of a complete answer.
    i128 cost(const std::vector<int> &answer) const {
        i128 total = 0;
        for (int node = 0; node < size(); ++node) total += costs[node][answer[node]];
        for (const Edge &edge : edges)
            total += edge.cost[static_cast<size_t>(answer[edge.u]) * costs[edge.v].size() + answer[edge.v]];
        return total;
    }

    // Whether the usages of live nodes fit at every time point.
    bool fits(const std::vector<int> &answer) const {
        std::vector<std::pair<i64, i64>> events;
        for (int node = 0; node < size(); ++node)
            if (intervals[node].first < intervals[node].second) {
                events.emplace_back(intervals[node].first, usages[node][answer[node]]);
                events.emplace_back(intervals[node].second, -usages[node][answer[node]]);
            }
        std::sort(events.begin(), events.end());  // at one time, what ends comes first
        i128 used = 0;
        for (const auto &[time, change] : events)
            if ((used += change) > limit) return false;
        return true;
    }
};

// Reads the contest's JSON. It knows the keys and the nesting; whitespace and the keys' order do not matter.
class Reader {
  public:
    explicit Reader(const std::string &path) {
        int file = open(path.c_str(), O_RDONLY);
        struct stat status {};
        if (file < 0 || fstat(file, &status) != 0) throw std::runtime_error("cannot read " + path);
        length = static_cast<size_t>(status.st_size);
        text = static_cast<char *>(mmap(nullptr, length + 1, PROT_READ, MAP_PRIVATE, file, 0));
        close(file);
        if (text == MAP_FAILED) throw std::runtime_error("cannot map " + path);
        at = text;
    }
    ~Reader() { munmap(text, length + 1); }
    Reader(const Reader &) = delete;
    Reader &operator=(const Reader &) = delete;

    Instance read() {
        object();
        if (pairs.size() != pair_costs.size()) throw std::runtime_error("edges: nodes and costs differ in number");
        for (size_t index = 0; index < pairs.size(); ++index)
            found.edges.push_back({pairs[index].first, pairs[index].second, std::move(pair_costs[index])});
        return std::move(found);
    }

  private:
    char *text = nullptr, *at = nullptr;
    size_t length = 0;
    Instance found;
    std::vector<std::pair<int, int>> pairs;
    std::vector<std::vector<i64>> pair_costs;

    char next() {
        while (at < text + length && std::strchr(" \t\r\n,:", *at)) ++at;
        if (at >= text + length) throw std::runtime_error("the file ends too early");
        return *at;
    }
    void take(char wanted) {
        if (next() != wanted) throw std::runtime_error(std::string("expected ") + wanted);
        ++at;
    }
    bool ends() {
        if (next() != ']') return false;
        ++at;
        return true;
    }
    i64 number() {
        bool negative = next() == '-';
        if (negative) ++at;
        i64 value = 0;
        while (at < text + length && *at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
        return negative ? -value : value;
    }
    std::string_view word() {
        take('"');
        char *begin = at;
        while (at < text + length && *at != '"') ++at;
        return {begin, static_cast<size_t>(at++ - begin)};
    }
    std::vector<i64> numbers() {
        std::vector<i64> values;
        for (take('['); !ends();) values.push_back(number());
        return values;
    }
    std::vector<std::vector<i64>> rows() {
        std::vector<std::vector<i64>> values;
        for (take('['); !ends();) values.push_back(numbers());
        return values;
    }
    template <class To> void pairs_into(To &to) {
        for (take('['); !ends();) {
            std::vector<i64> both = numbers();
            to.emplace_back(both.at(0), both.at(1));
        }
    }
    void object(std::string_view inside = "") {
        for (take('{'); next() != '}';) {
            std::string_view key = word();
            if (next() == '{') object(key);
            else if (*at == '"') word();
            else if (key == "usage_limit") found.limit = number();
            else if (key == "intervals") pairs_into(found.intervals);
            else if (key == "usages") found.usages = rows();
            else if (key == "nodes" && inside == "edges") pairs_into(pairs);
            else if (key == "costs" && inside == "edges") pair_costs = rows();
            else if (key == "costs") found.costs = rows();
            else throw std::runtime_error("unknown key " + std::string(key));
        }
        ++at;
    }
};
