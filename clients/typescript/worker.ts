// A worker for `anyqueue serve` in TypeScript, without dependencies: for browsers' `fetch`, as Node.js 18 and later have it.
//
// `api.d.ts` is made from the service's description:
//   npx openapi-typescript http://127.0.0.1:7780/openapi.json -o api.d.ts

import type { components } from "./api";

type Schemas = components["schemas"];
export type Delivery = Schemas["Handed"];
export type Push = Schemas["Push"];
export type Problem = Schemas["Problem"];

/** What the service refused, or could not do. `problem.retry` says what a repetition would do. */
export class ServiceError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export class Client {
  constructor(
    private readonly url: string,
    private readonly token?: string,
  ) {}

  async call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (this.token !== undefined) headers["authorization"] = `Bearer ${this.token}`;
    const init: RequestInit = { method, headers };
    if (body !== undefined) init.body = JSON.stringify(body);
    if (signal !== undefined) init.signal = signal;
    const answer = await fetch(this.url + path, init);
    const json: unknown = await answer.json();
    if (!answer.ok) throw new ServiceError(json as Problem);
    return json as T;
  }

  push(partition: string, items: Push[]): Promise<Schemas["Pushed"][]> {
    return this.call("POST", `/v1/partitions/${encodeURIComponent(partition)}/messages`, items);
  }

  pull(request: Schemas["Pull"], signal?: AbortSignal): Promise<Schemas["Pulled"]> {
    return this.call("POST", "/v1/pull", request, signal);
  }

  settle(items: Schemas["Settle"][]): Promise<Schemas["SettleAnswer"][]> {
    return this.call("POST", "/v1/settle", items);
  }

  extend(items: Schemas["Extend"][]): Promise<Schemas["ExtendAnswer"][]> {
    return this.call("POST", "/v1/extend", items);
  }
}

/** How long a message is held without a word of this worker. */
const LEASE_MS = 60_000;
/** The pause after a failure. */
const PAUSE_MS = 1_000;

export type Handler = (delivery: Delivery, signal: AbortSignal) => Promise<unknown>;

/** Works on one message after the other until `stop` fires. What is under way then is finished. */
export async function work(client: Client, name: string, partition: string, handler: Handler, stop: AbortSignal) {
  let received: string | undefined;
  while (!stop.aborted) {
    try {
      const request: Schemas["Pull"] = { partitions: [partition], worker: name, wait_ms: 20_000, lease_ms: LEASE_MS };
      if (received !== undefined) request.received = received;
      const pulled = await client.pull(request, stop);
      received = pulled.pull;
      for (const delivery of pulled.deliveries) await run(client, name, delivery, handler);
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof ServiceError && error.problem.retry === "never") throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

async function run(client: Client, worker: string, { delivery, ...rest }: Delivery, handler: Handler) {
  const cancel = new AbortController();
  let lost = false;
  const keep = setInterval(async () => {
    try {
      const [answer] = await client.extend([{ delivery, lease_ms: LEASE_MS }]);
      if (answer?.outcome === "lost") lost = true;
      if (answer?.outcome === "lost" || answer?.outcome === "cancel_requested") cancel.abort();
    } catch {
      // The next one may arrive; if none does, the message comes to somebody else.
    }
  }, LEASE_MS / 3);
  let settlement: Schemas["Settle"];
  try {
    // Any JSON: the description has no type for that.
    const result = ((await handler({ delivery, ...rest }, cancel.signal)) ?? null) as Record<string, never> | null;
    settlement = { delivery, worker, status: "processed", result };
  } catch (error) {
    settlement = { delivery, worker, status: cancel.signal.aborted ? "cancelled" : "failed", error: String(error) };
  } finally {
    clearInterval(keep);
  }
  if (!lost) await client.settle([settlement]);
}
