//! Core over many schedules: which task runs next, where calls fail and where futures are dropped is ruled by a seed.
//!
//! After each schedule: every call has ended; no wake-up was lost; no lease was trusted beyond its end; all slots are back; no task
//! is left; and the account is right by id. Each test runs a fixed number of seeds, and a failure names its own:
//!
//! - `ANYQUEUE_SCHEDULES=20000 cargo test -p anyqueue --test schedules` runs as many of each kind;
//! - `ANYQUEUE_SCHEDULE=17 cargo test -p anyqueue --test schedules streams` runs that one again, exactly.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

mod actors;
mod executor;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyqueue::adapter::*;
use anyqueue::*;
use fastrand::Rng;

use actors::Actor;
use executor::Executor;
use world::{Server, World};

/// Schedules of each kind, in a usual run.
const SCHEDULES: u64 = 150;
/// A wake-up that has not come by then is lost: the longest pause of a stream after errors is 5 s.
const LOST: Duration = Duration::from_secs(15);
/// No call takes longer.
const END: Duration = Duration::from_mins(30);
const LEASE: Duration = Duration::from_millis(30);

/// What a schedule is made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pushers: usize,
    pullers: usize,
    streams: usize,
    settle_pulls: usize,
    times: usize,
    max_held: usize,
    in_flight: usize,
    linger: Duration,
    exchange: bool,
    batch: usize,
    faults: usize,
    cuts: u8,
    holds: Duration,
    closes: bool,
}

impl Plan {
    /// Something of everything; each kind changes what it is about.
    fn any(rng: &mut Rng) -> Self {
        Self {
            pushers: rng.usize(1..=3),
            pullers: rng.usize(1..=3),
            streams: rng.usize(..=1),
            settle_pulls: rng.usize(..=1),
            times: rng.usize(2..=6),
            max_held: rng.usize(2..=12),
            in_flight: rng.usize(1..=3),
            linger: if rng.u8(..4) == 0 { Duration::from_millis(1) } else { Duration::ZERO },
            exchange: rng.bool(),
            batch: rng.usize(1..=8),
            faults: if rng.bool() { rng.usize(..8) } else { 0 },
            cuts: if rng.bool() { 5 } else { 0 },
            holds: LEASE / 3,
            closes: false,
        }
    }
}

/// One schedule; returns what was chosen, as one number.
fn run(seed: u64, kind: fn(&mut Plan, &mut Rng)) -> u64 {
    fastrand::seed(seed); // core's own, for the pauses between attempts
    let mut rng = Rng::with_seed(seed);
    let mut plan = Plan::any(&mut rng);
    kind(&mut plan, &mut rng);
    let world = World::new(seed);
    world.state().faults = plan.faults;
    let mut executor = Executor::new(seed, world.clock.clone());
    let queue = queue(&world, plan, &executor);
    let actor = |rng: &mut Rng| Actor {
        world: world.clone(),
        queue: queue.clone(),
        spawns: executor.spawns(),
        rng: rng.fork(),
        cuts: plan.cuts,
        holds: plan.holds,
    };
    let spawns = executor.spawns();
    for _ in 0..plan.pushers {
        spawns.spawn("pushes", actor(&mut rng).pushes(plan.times));
    }
    for _ in 0..plan.pullers {
        spawns.spawn("pulls", actor(&mut rng).pulls(plan.times));
    }
    for _ in 0..plan.streams {
        spawns.spawn("a stream", actor(&mut rng).streams(plan.times * 2));
    }
    for _ in 0..plan.settle_pulls {
        spawns.spawn("settle_pulls", actor(&mut rng).settle_pulls(plan.times));
    }
    if plan.closes {
        spawns.spawn("closes", actor(&mut rng).closes());
    }
    until_all_have_ended(&mut executor, &world, &mut rng, !plan.closes);
    if !plan.closes {
        all_slots_are_back(&mut executor, &world, &queue, plan.max_held);
    }
    nothing_is_left(&mut executor, &world, queue);
    world.check_account();
    executor.trace()
}

fn queue(world: &Arc<World>, plan: Plan, executor: &Executor) -> Queue {
    let mut capabilities = world.memory.capabilities().clone();
    capabilities.coalesce_settle.in_flight = plan.in_flight;
    capabilities.coalesce_settle.linger = plan.linger;
    capabilities.coalesce_push.in_flight = plan.in_flight;
    capabilities.exchange = plan.exchange;
    capabilities.limits.push_batch = plan.batch;
    capabilities.limits.pull_batch = plan.batch;
    capabilities.limits.settle_batch = plan.batch;
    Queue::builder(Server(world.clone(), capabilities))
        .clock(world.clock.clock())
        .spawner(executor.spawner())
        .defaults(PartitionOptions::default().with_lease(LEASE))
        .max_held(plan.max_held)
        .build()
        .unwrap()
}

/// Runs, and lets time pass where nothing else can happen, until only core's own tasks are there.
fn until_all_have_ended(executor: &mut Executor, world: &World, rng: &mut Rng, watched: bool) {
    let begun = world.clock.clock().now();
    let (mut step, mut seen) = (Duration::ZERO, 0);
    let mut stuck: Option<Instant> = None;
    loop {
        executor.run_until_idle();
        if executor.alive().iter().all(|name| *name == "core") {
            return;
        }
        let now = world.clock.clock().now();
        assert!(now < begun + END, "these never ended: {:?}", executor.alive());
        let (progress, held, waiting) = {
            let state = world.state();
            (state.progress, state.held, state.waiting)
        };
        let is_stuck = watched && waiting > 0 && held == 0 && world.ready() > 0;
        stuck = stuck.filter(|_| is_stuck && progress == seen).or_else(|| is_stuck.then_some(now));
        assert!(
            stuck.is_none_or(|since| now < since + LOST),
            "messages are ready, {waiting} wait for them, nobody holds any, and nothing happens; alive: {:?}",
            executor.alive()
        );
        // Small steps while something goes on, ever larger ones while nothing does.
        let quiet = progress == seen && held == 0;
        step = if quiet { (step * 2).min(Duration::from_secs(1)) } else { Duration::ZERO };
        step = step.max(Duration::from_micros(rng.u64(1..3000)));
        seen = progress;
        world.clock.advance(step);
    }
}

/// Lets what goes on in the background end.
fn settle_down(executor: &mut Executor, world: &World) {
    for _ in 0..400 {
        executor.run_until_idle();
        world.clock.advance(Duration::from_millis(25));
    }
    executor.run_until_idle();
}

fn all_slots_are_back(executor: &mut Executor, world: &Arc<World>, queue: &Queue, max_held: usize) {
    world.state().faults = 0;
    settle_down(executor, world);
    let got = Arc::new(AtomicUsize::new(0));
    let (count, queue) = (got.clone(), queue.clone());
    executor.spawns().spawn("slots", async move {
        let messages = (0..=max_held).map(|_| MessageData::new("x")).collect();
        queue.push_many("slots", messages).await.unwrap();
        let held = queue.pull("slots").max(max_held + 1).await.unwrap();
        count.store(held.len(), SeqCst);
    });
    executor.run_until_idle();
    assert_eq!(got.load(SeqCst), max_held, "free slots, of {max_held}");
}

/// Ends the queue, and what was held comes back.
fn nothing_is_left(executor: &mut Executor, world: &World, queue: Queue) {
    let closing = queue.clone();
    executor.spawns().spawn("close", async move { closing.close().await.unwrap() });
    drop(queue);
    settle_down(executor, world);
    assert!(executor.alive().is_empty(), "left: {:?}", executor.alive());
    world.clock.advance(Duration::from_hours(1));
}

/// Runs many seeds; a failure is told with its own.
fn schedules(kind: fn(&mut Plan, &mut Rng)) {
    let set = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seeds = match set("ANYQUEUE_SCHEDULE") {
        Some(seed) => seed..seed + 1,
        None => 0..set("ANYQUEUE_SCHEDULES").unwrap_or(SCHEDULES),
    };
    for seed in seeds {
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed, kind)));
        assert!(ran.is_ok(), "this was schedule {seed}: ANYQUEUE_SCHEDULE={seed} runs it again");
    }
}

#[test]
fn joined_calls() {
    schedules(|plan, rng| {
        (plan.pushers, plan.max_held, plan.holds) = (rng.usize(2..=5), 64, LEASE / 100);
    });
}

#[test]
fn slots() {
    schedules(|plan, rng| {
        (plan.pullers, plan.max_held, plan.cuts) = (rng.usize(3..=6), rng.usize(1..=4), rng.u8(..8));
    });
}

#[test]
fn leases() {
    schedules(|plan, rng| {
        (plan.holds, plan.max_held) = (LEASE * rng.u32(1..=3), 64);
    });
}

#[test]
fn streams() {
    schedules(|plan, rng| {
        (plan.streams, plan.pullers, plan.exchange) = (rng.usize(1..=3), rng.usize(..=1), rng.u8(..4) > 0);
    });
}

#[test]
fn close() {
    schedules(|plan, _| plan.closes = true);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..12 {
        assert_eq!(run(seed, |_, _| {}), run(seed, |_, _| {}), "schedule {seed}");
    }
}
