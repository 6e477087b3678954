// Walks the statements of a program: blocks of points of the parallel axes, loops by tiles, assignments and stores over
// all their elements.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "oracle/evaluator.h"
#include "oracle/tiles.h"

namespace pipethreader::oracle {

class Machine {
 public:
  Machine(const Program& program, const Inputs& inputs, const Partition& partition);
  // Consumes the machine.
  Result<Outputs> run(const Sample& sample);
  void perturb(std::uint64_t seed) { evaluator_.perturb(seed); }

 private:
  void make_room();
  void keep_sample();
  void run_block(std::span<const std::int64_t> numbers);
  void run_body(const std::vector<int>& statements);
  void run_statement(const StatementNode& statement);
  void run_loop(const StatementNode& statement);
  void run_tiles(const LoopNode& loop, const std::vector<Tile>& tiles, std::size_t first, std::size_t last);
  void forget_tile(const LoopNode& loop);
  void assign_or_store(const StatementNode& statement);
  void lanes_of(const StatementNode& statement, std::size_t point, std::size_t points, std::size_t first,
                std::size_t count, Points& lanes);
  void run_lanes(const StatementNode& statement, const Points& lanes);
  const std::size_t* places_of(const StatementNode& statement, const Points& points);
  // What a statement makes of the elements of its target, lane by lane.
  struct Update {
    Number* numbers;
    std::uint64_t* tags;
    double* terms;
    double* magnitudes;
  };
  struct Write {
    std::size_t at;
    Number number;
    std::uint64_t tag;
    double terms, magnitude;
  };
  Update allocate_update(std::size_t count);
  Update assignment(const StatementNode& statement, const Points& points);
  Update accumulation(const StatementNode& statement, const Points& points);
  static double rescaled(double magnitude, double from, double to);
  void write_value(const StatementNode& statement, const Points& points, const Update& update, const Lanes* when);
  void commit(int target, const Write& write);
  void write_tensor(const StatementNode& statement, const Points& points, const Lanes& lanes, const Lanes* when);
  Number stored(const StatementNode& statement, ScalarType type, Number number) const;
  // What a sample wrote, in that order, until its elements are known.
  struct Element {
    std::int64_t at;
    Number number;
  };
  void put(std::size_t output, const Element& element);

  const Program& program_;
  const Partition& partition_;
  Evaluator evaluator_;
  Outputs outputs_;
  std::vector<std::vector<Element>> samples_;  // by output; empty: all elements have room in `outputs_`
  std::vector<int> output_of_tensor_;
  std::size_t block_points_ = 1;
  std::vector<std::vector<double>> block_columns_;  // by position in program_.parallel, then the point's number
  std::vector<double> block_numbers_;
  std::map<int, Storage> initial_;  // carried values as their `carry` set them, for loops that combine
  std::vector<Write> pending_;      // of an assignment that reads its target at other indices
};

}  // namespace pipethreader::oracle
