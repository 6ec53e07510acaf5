// A worker for `anyqueue serve` in TypeScript, without dependencies: for browsers' `fetch`, as Node.js 18 and later have it.
//
// `api.d.ts` is made from the service's description:
//   npx openapi-typescript http://127.0.0.1:7780/openapi.json -o api.d.ts

import type { components } from "./api";

type Schemas = components["schemas"];
export type Delivery = Schemas["Handed"];
export type Push = Schemas["Push"];
export type Problem = Schemas["Problem"];

/** How long an answer is waited for, beside what was asked to wait. */
const PATIENCE_MS = 10_000;
/** How long a pull waits for a message. */
const WAIT_MS = 20_000;
/** The pause after a failure. */
const PAUSE_MS = 1_000;

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

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

  async call<T>(method: string, path: string, body?: unknown, waitMs = 0, signal?: AbortSignal): Promise<T> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (this.token !== undefined) headers["authorization"] = `Bearer ${this.token}`;
    const cut = new AbortController();
    const stop = () => cut.abort(signal?.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop);
    const timer = setTimeout(() => cut.abort(new Error(`no answer in time to ${method} ${path}`)), waitMs + PATIENCE_MS);
    try {
      const init: RequestInit = { method, headers, signal: cut.signal };
      if (body !== undefined) init.body = JSON.stringify(body);
      const answer = await fetch(this.url + path, init);
      const json: unknown = await answer.json();
      if (!answer.ok) throw new ServiceError(json as Problem);
      return json as T;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }

  push(partition: string, items: Push[]): Promise<Schemas["Pushed"][]> {
    return this.call("POST", `/v1/partitions/${encodeURIComponent(partition)}/messages`, items);
  }

  pull(request: Schemas["Pull"], signal?: AbortSignal): Promise<Schemas["Pulled"]> {
    return this.call("POST", "/v1/pull", request, request.wait_ms, signal);
  }

  settle(items: Schemas["Settle"][]): Promise<Schemas["SettleAnswer"][]> {
    return this.call("POST", "/v1/settle", items);
  }

  extend(items: Schemas["Extend"][]): Promise<Schemas["ExtendAnswer"][]> {
    return this.call("POST", "/v1/extend", items);
  }
}

export type Handler = (delivery: Delivery, signal: AbortSignal) => Promise<unknown>;

export interface Options {
  partition: string;
  /** What the worker is called: another name for each that runs. */
  name: string;
  /** How long a message is held without a word of this worker; by default a minute. */
  leaseMs?: number;
}

/** Works on one message after the other until `stop` fires. What is under way then is finished. */
export async function work(client: Client, options: Options, handler: Handler, stop: AbortSignal) {
  const { partition, name, leaseMs = 60_000 } = options;
  let received: string | undefined;
  while (!stop.aborted) {
    try {
      const request: Schemas["Pull"] = { partitions: [partition], worker: name, wait_ms: WAIT_MS, lease_ms: leaseMs };
      if (received !== undefined) request.received = received;
      const pulled = await client.pull(request, stop);
      received = pulled.pull;
      for (const delivery of pulled.deliveries) await run(client, name, leaseMs, delivery, handler);
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof ServiceError && error.problem.retry === "never") throw error;
      await pause();
    }
  }
}

/** Works on one message, and holds it meanwhile. `handler` is told by its signal that the result is not wanted any more. */
async function run(client: Client, worker: string, leaseMs: number, handed: Delivery, handler: Handler) {
  const { delivery } = handed;
  const cancel = new AbortController();
  let lost = false;
  let until = performance.now() + leaseMs;
  const keep = setInterval(async () => {
    const asked = performance.now();
    try {
      const [answer] = await client.extend([{ delivery, lease_ms: leaseMs }]);
      if (answer?.outcome === "lost") lost = true;
      else until = asked + leaseMs;
      if (answer?.outcome === "lost" || answer?.outcome === "cancel_requested") cancel.abort();
    } catch {
      // The next one may arrive; if none does, the message comes to somebody else.
    }
  }, leaseMs / 3);
  try {
    const settlement = await end(delivery, worker, () => handler(handed, cancel.signal), cancel.signal);
    // Until that is heard, or the lease is over: settling twice harms nothing.
    while (!lost) {
      try {
        const [answer] = await client.settle([settlement]);
        if (answer?.outcome === "error") throw new ServiceError(answer.problem);
        return;
      } catch (error) {
        const isRefused = error instanceof ServiceError && error.problem.retry === "never";
        if (isRefused || performance.now() > until) throw error;
        await pause();
      }
    }
  } finally {
    clearInterval(keep);
  }
}

async function end(
  delivery: string,
  worker: string,
  handle: () => Promise<unknown>,
  cancel: AbortSignal,
): Promise<Schemas["Settle"]> {
  try {
    // Any JSON: the description has no type for that.
    const result = ((await handle()) ?? null) as Record<string, never> | null;
    return { delivery, worker, status: "processed", result };
  } catch (error) {
    return { delivery, worker, status: cancel.aborted ? "cancelled" : "failed", error: String(error) };
  }
}
