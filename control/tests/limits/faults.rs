//! A store that fails, hangs, or does what it is told and loses the answer; processes that are cut off or frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Error, ErrorKind, Page, Result};
use anyqueue_control::limits::{Limit, Limits};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::Permits;

use crate::bed::{BEAT_OF_EACH, Bed, mail, millis, secs, store_over};

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;
const LOSES_ANSWERS: u8 = 3;

#[derive(Debug)]
struct Faulty {
    memory: MemoryQueue,
    mode: AtomicU8,
}

impl Faulty {
    fn over(bed: &Bed) -> (Arc<Self>, Limits) {
        let faulty = Arc::new(Self { memory: bed.memory.client(), mode: AtomicU8::new(WORKS) });
        let storage: Arc<dyn Storage> = faulty.clone();
        (faulty, Limits::new(store_over(storage, &bed.time)))
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, SeqCst);
    }

    async fn call(&self) -> Result<()> {
        match self.mode.load(SeqCst) {
            FAILS => Err(broken()),
            HANGS => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection broke")
}

impl Forward for Faulty {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Faulty {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.call().await?;
        self.memory.get(keys).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.call().await?;
        self.memory.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.call().await?;
        let applied = self.memory.apply(changes).await;
        if self.mode.load(SeqCst) == LOSES_ANSWERS { Err(broken()) } else { applied }
    }
}

async fn put(bed: &Bed, most: u64) {
    bed.limits.put("l", &Limit::partition("mail").unwrap().cap(most)).await.unwrap();
}

#[tokio::test]
async fn a_process_that_is_cut_off_starts_nothing_and_stops_its_tasks_before_others_get_its_permits() {
    for mode in [FAILS, HANGS] {
        let bed = Bed::new();
        put(&bed, 2).await;
        let (faulty, limits) = Faulty::over(&bed);
        let a = bed.process_over(&limits, "a").await;
        assert_eq!(a.get(&bed, 2).await, 2);
        let task = a.start().unwrap();
        let b = bed.process("b").await;
        faulty.set(mode);
        bed.pass(secs(4)).await;
        assert!(a.permits.can_start(&mail(), 1), "its block still counts for long");
        let mut waited = secs(4);
        while b.take(1) == 0 {
            bed.pass(millis(250)).await;
            waited += millis(250);
            if waited > secs(11) {
                assert!(!a.permits.can_start(&mail(), 1) && a.start().is_none(), "{waited:?}");
            }
            assert!(waited < millis(15_500));
        }
        assert!(task.is_cancelled(), "it was to stop before");
        assert!(a.permits.problem().unwrap().contains("limits cannot be reached"));
        a.end(1);
        a.release(1);
        faulty.set(WORKS);
        bed.pass(secs(6)).await;
        assert_eq!((a.get(&bed, 1).await, a.permits.problem()), (1, None), "it goes on");
    }
}

#[tokio::test]
async fn nothing_starts_before_the_store_was_reached_once() {
    let bed = Bed::new();
    let (faulty, limits) = Faulty::over(&bed);
    faulty.set(FAILS);
    let a = bed.process_over(&limits, "a").await;
    assert_eq!((a.get(&bed, 1).await, a.permits.room(&mail(), 1)), (0, Some(0)));
    assert!(a.permits.problem().is_some());
    faulty.set(WORKS);
    bed.pass(secs(2)).await;
    assert_eq!((a.take(1), a.permits.room(&mail(), 1)), (1, None));
}

#[tokio::test]
async fn permits_whose_answer_was_lost_are_not_used_and_not_lost() {
    let bed = Bed::new();
    put(&bed, 4).await;
    let (faulty, limits) = Faulty::over(&bed);
    let a = bed.process_over(&limits, "a").await;
    faulty.set(LOSES_ANSWERS);
    assert_eq!(a.get(&bed, 3).await, 0);
    assert_eq!(bed.info().await.held, 3, "it was done");
    faulty.set(WORKS);
    bed.pass(secs(6)).await;
    assert_eq!(a.get(&bed, 3).await, 3);
    // It gives two back, and the answer to that is lost: others may have them already.
    a.release(3);
    faulty.set(LOSES_ANSWERS);
    bed.pass(secs(9)).await;
    let b = bed.process("b").await;
    let of_b = b.get(&bed, 4).await;
    assert!(of_b + a.take(4) <= 4, "{of_b}");
}

#[tokio::test]
async fn a_process_that_was_frozen_stops_what_it_runs_when_it_wakes_up() {
    let bed = Bed::new();
    put(&bed, 1).await;
    let mut a = bed.process("a").await;
    let b = bed.process("b").await;
    assert_eq!((a.get(&bed, 1).await, b.get(&bed, 1).await), (1, 0));
    let task = a.start().unwrap();
    a.freeze().await;
    let mut of_b = 0;
    for _ in 0..20 {
        of_b += b.take(1);
        bed.pass(secs(1)).await;
    }
    assert_eq!((of_b, task.is_cancelled()), (1, false));
    assert!(!a.permits.can_start(&mail(), 1) && a.start().is_none(), "not even before it looks");
    a.wake();
    bed.turns().await;
    assert!(task.is_cancelled());
    assert_eq!(bed.info().await.held, 2, "both run, and it says so");
    a.end(1);
    assert_eq!(a.take(1), 0, "the other one has the only permit");
    bed.pass(secs(6)).await;
    assert_eq!((bed.info().await.held, a.take(1)), (1, 0));
}

#[tokio::test]
async fn a_process_that_was_frozen_starts_nothing_with_permits_that_others_have_by_then() {
    let bed = Bed::new();
    put(&bed, 2).await;
    let mut a = bed.process("a").await;
    let b = bed.process("b").await;
    assert_eq!(a.get(&bed, 2).await, 2, "for tasks that it is just getting");
    a.freeze().await;
    let mut of_b = 0;
    for _ in 0..20 {
        of_b += b.get(&bed, 2 - of_b).await;
        bed.pass(secs(1)).await;
    }
    assert_eq!((of_b, b.start().is_some(), b.start().is_some()), (2, true, true));
    a.wake();
    for _ in 0..24 {
        bed.pass(millis(250)).await;
        assert!(!a.permits.can_start(&mail(), 1) && a.start().is_none(), "the other one runs two");
    }
    b.end(1);
    bed.pass(BEAT_OF_EACH).await;
    assert!(a.start().is_some(), "there is one for it again");
    assert!(a.start().is_none(), "and no second");
    b.end(1);
    bed.pass(BEAT_OF_EACH).await;
    assert!(a.start().is_some());
}
