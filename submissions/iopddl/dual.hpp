// Prices of memory, from the Lagrangian relaxation: what a byte is worth at each time point.
//
// The bound of message passing rises along its subgradient, which is what the answers would use beyond the limit. It is
// taken with momentum, since the limit at neighbouring time points depends on much the same nodes: single subgradients
// swing between too little and too much. Where the bound no longer rises, the best prices are the next start, and steps
// are half as long.

#pragma once

#include "messages.hpp"

class Dual {
  public:
    double bound = 0;
    std::vector<double> price;  // with which the bound was reached

    explicit Dual(const Model &model) : price(model.points), model(model), messages(model), velocity(model.points) {}

    // One pass, and one step towards `reached`, the least cost that is known. Whether more of them may help.
    bool advance(double reached) {
        const double found = messages.pass(std::max(1.0, blur * std::abs(bound)));
        ++passes;
        if (passes > 1 && found <= bound * (1 + 1e-7)) ++stale;
        else stale = 0;
        if (passes == 1 || found > bound) {
            bound = found;
            price = messages.price;
            step = std::min(2.0, step * 1.05);
        }
        if (passes < 10) return true;
        if (stale > PATIENCE || (stale > 5 && found < bound - (reached - bound))) {
            stale = 0;
            step *= 0.5;
            blur *= 0.7;
            std::fill(velocity.begin(), velocity.end(), 0.0);
            messages.price = price;
        } else {
            double square = 0;
            for (int point = 0; point < model.points; ++point)
                if (messages.excess[point] > 0 || messages.price[point] > 0) square += messages.excess[point] * messages.excess[point];
            const double distance = std::clamp(reached - found, 0.0, 0.3 * std::abs(found) + 1);
            for (int point = 0; point < model.points && square > 0; ++point) {
                velocity[point] = MOMENTUM * velocity[point] + (1 - MOMENTUM) * messages.excess[point];
                messages.price[point] = std::max(0.0, messages.price[point] + step * distance / square * velocity[point]);
            }
        }
        messages.reprice();
        return step > 1e-5 && reached > bound * (1 + 1e-9);
    }

    const std::vector<int> &answer() const { return messages.chosen; }

  private:
    static constexpr double MOMENTUM = 0.97;
    static constexpr int PATIENCE = 60;
    const Model &model;
    Messages messages;
    std::vector<double> velocity;
    double step = 0.2, blur = 3e-6;
    int stale = 0, passes = 0;
};
