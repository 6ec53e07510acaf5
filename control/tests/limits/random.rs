//! Many processes at random: the sum of what they hold is never more than the cap, and nothing leaks.

use std::time::Duration;

use anyqueue::CancellationToken;
use anyqueue_control::limits::Limit;

use crate::bed::{Bed, Process, millis, secs};

/// A process, and its tasks, each with what tells it to stop.
struct Busy {
    process: Process,
    running: Vec<CancellationToken>,
    is_frozen: bool,
    /// What it had when it woke up, and when that was: it can have been given to others meanwhile.
    woken: (u64, Duration),
}

impl Busy {
    async fn freeze(&mut self) {
        self.process.freeze().await;
        self.is_frozen = true;
    }

    fn wake(&mut self, now: Duration) {
        self.process.wake();
        self.is_frozen = false;
        self.woken = (self.running.len() as u64, now);
    }

    fn start(&mut self, most: usize) {
        for _ in 0..self.process.take(most) {
            match self.process.start() {
                Some(task) => self.running.push(task),
                None => self.process.release(1),
            }
        }
    }

    fn end(&mut self, tasks: usize) {
        self.running.truncate(self.running.len() - tasks);
        self.process.end(tasks);
    }

    /// Tasks that are told to stop do.
    fn stop(&mut self) {
        let before = self.running.len();
        self.running.retain(|task| !task.is_cancelled());
        self.process.end(before - self.running.len());
    }
}

async fn step(bed: &Bed, one: &mut Busy, random: &mut fastrand::Rng, now: &mut Duration) {
    match random.u8(0..20) {
        0 if !one.is_frozen => one.freeze().await,
        0..=2 if one.is_frozen => one.wake(*now),
        3..=10 if !one.is_frozen => one.start(random.usize(1..6)),
        11..=16 if !one.is_frozen => {
            let ended = random.usize(0..=one.running.len());
            one.end(ended);
        }
        _ => {
            let time = millis(random.u64(0..1500));
            *now += time;
            bed.pass(time).await;
        }
    }
    bed.turns().await;
}

async fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let bed = Bed::new();
    let cap = random.u64(1..12);
    let limit = Limit::partition("mail").unwrap().cap(cap);
    bed.limits.put("l", &limit).await.unwrap();
    let mut all = Vec::new();
    for n in 0..random.usize(2..6) {
        let process = bed.process(&n.to_string()).await;
        all.push(Busy { process, running: Vec::new(), is_frozen: false, woken: (0, Duration::ZERO) });
    }
    let (mut most, mut now) = (0, Duration::ZERO);
    for turn in 0..300 {
        let count = all.len();
        step(&bed, &mut all[random.usize(0..count)], &mut random, &mut now).await;
        all.iter_mut().filter(|one| !one.is_frozen).for_each(Busy::stop);
        let held = bed.info().await.held;
        // One that was frozen says on waking what it still runs. If it is frozen again at once, that counts until its time is over.
        let lately = all.iter().filter(|one| now < one.woken.1 + secs(16));
        let woken: u64 = lately.map(|one| one.woken.0).sum();
        assert!(held <= cap + woken, "turn {turn} of seed {seed}: {held} of {cap}");
        most = most.max(held);
    }
    assert!(most > 0, "seed {seed}");
    for one in &mut all {
        one.end(one.running.len());
        one.freeze().await;
    }
    bed.pass(secs(16)).await;
    let last = bed.process("last").await;
    let mut got = last.get(&bed, 100).await;
    bed.pass(secs(1)).await;
    got += last.take(100);
    assert_eq!(got as u64, cap, "seed {seed}: nothing has leaked");
}

#[tokio::test]
async fn whatever_processes_do_they_do_not_hold_more_than_the_cap_and_leak_nothing() {
    for seed in 0..25 {
        run(seed).await;
    }
}

/// Without frozen processes there is no excuse: also what runs is never more than the cap.
#[tokio::test]
async fn what_runs_is_never_more_than_the_cap() {
    for seed in 0..25 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bed = Bed::new();
        let cap = random.u64(1..12);
        bed.limits.put("l", &Limit::partition("mail").unwrap().cap(cap)).await.unwrap();
        let mut all = Vec::new();
        for n in 0..4 {
            all.push((bed.process(&n.to_string()).await, 0));
        }
        for _ in 0..300 {
            let (process, in_use) = &mut all[random.usize(0..4)];
            if random.bool() {
                *in_use += process.take(random.usize(1..6));
            } else {
                let back = random.usize(0..=*in_use);
                process.release(back);
                *in_use -= back;
            }
            let sum: usize = all.iter().map(|(_, in_use)| in_use).sum();
            assert!(sum as u64 <= cap, "seed {seed}");
            match random.u8(0..3) {
                0 => bed.turns().await,
                1 => bed.pass(millis(random.u64(0..3000))).await,
                _ => {}
            }
        }
    }
}
