// What the test in typescript.rs runs: a client and a worker against the service whose address is the argument.
import { Client, ServiceError, work } from "./worker.js";

const client = new Client(process.argv[2]);
const lease = { partition: "jobs", name: "w1", leaseMs: 900 };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const items = ["works", "fails", "takes long", "is cancelled"].map((kind) => ({ kind, json: { kind } }));
const pushed = await client.push("jobs", [...items, { kind: "last", payload: "" }]);
const ids = pushed.map((answer) => answer.id);

const runs = {};
const stop = new AbortController();
await work(
  client,
  lease,
  async (delivery, signal) => {
    runs[delivery.kind] = (runs[delivery.kind] ?? 0) + 1;
    switch (delivery.kind) {
      case "works":
        return { said: delivery.payload };
      case "fails":
        throw new Error("broke");
      case "takes long":
        await sleep(3 * lease.leaseMs);
        return "in the end";
      case "is cancelled":
        await client.call("POST", `/v1/tasks/${delivery.id}/cancel?partition=jobs`);
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("told to stop"))));
        return null;
      default:
        stop.abort();
        return null;
    }
  },
  stop.signal,
);

let refused;
try {
  await client.pull({ partitions: [], wait_ms: 0 });
} catch (error) {
  refused = error instanceof ServiceError ? error.problem.kind : String(error);
}
console.log(JSON.stringify({ ids, runs, refused }));
