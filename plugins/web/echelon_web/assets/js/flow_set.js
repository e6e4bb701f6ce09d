// Flows that finished, by column, in the order of their starts; and the lane of each within its job.

const MOST_LANES = 12;

export class FlowSet {
  // `table` is the API's FlowTable.
  constructor(table) {
    const count = table.start_s.length;
    const order = Array.from({ length: count }, (_, at) => at).sort((a, b) => table.start_s[a] - table.start_s[b]);
    this.size = count;
    this.jobs = table.jobs;
    this.names = table.flows;
    this.job = Int32Array.from(order, (at) => table.job[at]);
    this.name = Int32Array.from(order, (at) => table.flow[at]);
    this.iteration = Int32Array.from(order, (at) => table.iteration[at]);
    // Times count from the first start.
    this.origin = count ? table.start_s[order[0]] : 0;
    this.start = Float64Array.from(order, (at) => table.start_s[at] - this.origin);
    this.finish = Float64Array.from(order, (at) => table.finish_s[at] - this.origin);
    this.late = Float64Array.from(order, (at) => table.tardiness_s[at] ?? NaN);
    this.end = this.finish.reduce((last, one) => Math.max(last, one), 0);
    this.byJob = this.jobs.map(() => []);
    for (let at = 0; at < count; at += 1) this.byJob[this.job[at]].push(at);
    this.lane = new Int32Array(count);
    this.lanes = this.byJob.map((flows) => this.spread(flows));
    this.longest = this.byJob.map((flows) => flows.reduce((most, at) => Math.max(most, this.finish[at] - this.start[at]), 0));
  }

  // Gives each flow of a job the first lane that is free at its start. Returns the number of lanes.
  spread(flows) {
    const free = [];
    for (const at of flows) {
      let lane = free.findIndex((until) => until <= this.start[at] + 1e-12);
      if (lane === -1) lane = free.length < MOST_LANES ? free.length : at % MOST_LANES;
      free[lane] = this.finish[at];
      this.lane[at] = lane;
    }
    return Math.max(1, free.length);
  }

  ideal(at) {
    return this.finish[at] - this.late[at];
  }

  // The places in `byJob[job]` of the flows that may be under way between two times: [first, last).
  window(job, from, to) {
    return [this.place(job, from - this.longest[job]), this.place(job, to)];
  }

  place(job, time) {
    const flows = this.byJob[job];
    let [low, high] = [0, flows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[flows[middle]] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Returns the flow of a job in a lane at a time, or null. `slack`: as far from it as this counts.
  at(job, lane, time, slack) {
    const [first, last] = this.window(job, time - slack, time + slack);
    const flows = this.byJob[job];
    let best = null;
    for (let place = first; place < last; place += 1) {
      const at = flows[place];
      if (this.lane[at] === lane && this.start[at] - slack <= time && time <= this.finish[at] + slack) best = at;
    }
    return best;
  }
}
