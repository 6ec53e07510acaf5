//! Slots that shrink and grow with what the governor sees.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Governor, Partition, Room};

use crate::meter::{Meter, beside, millis, pass, push};

/// Sees what it is told to.
#[derive(Clone, Debug)]
struct Told(Arc<Mutex<Room>>);

impl Told {
    fn now(&self, share: f64) {
        *self.0.lock().unwrap() = Room::of(share, "as the test wants");
    }
}

impl Governor for Told {
    fn check(&self) -> Room {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn the_slots_in_use_shrink_and_grow_with_the_room_of_the_machine() {
    let (meter, told) = (Meter::default(), Told(Arc::new(Mutex::new(Room::all()))));
    let harness = Harness::new(|worker| {
        let worker = worker.slots(16).prefetch(4).prefetch_ttl(Duration::from_mins(5));
        meter.handler(worker.partition(Partition::new("p")).governor(told.clone()), "k", 1)
    })
    .unwrap();
    push(&harness, "p", "k", 500, 1000).await;
    let leased = async || harness.counts("p").await.unwrap().leased.unwrap();
    let watch = async {
        pass(&harness, millis(200)).await;
        assert_eq!((meter.in_use(), leased().await), (16, 20));
        told.now(0.25);
        pass(&harness, Duration::from_secs(2)).await;
        assert_eq!((meter.in_use(), leased().await), (4, 8), "what was held beyond went back");
        let health = harness.worker().health();
        assert_eq!((health.slots, health.throttled.as_deref()), (4, Some("as the test wants")));
        assert_eq!(harness.worker().slots(), 16, "as it was set");
        told.now(1.0);
        pass(&harness, Duration::from_secs(3)).await;
        assert_eq!(meter.in_use(), 4, "not at once");
        let mut before = 4;
        for _ in 0..12 {
            pass(&harness, Duration::from_secs(1)).await;
            let slots = harness.worker().health().slots;
            assert!((before..=before + 2).contains(&slots), "from {before} to {slots} in a second");
            before = slots;
        }
        let health = harness.worker().health();
        assert_eq!((meter.in_use(), health.slots, health.throttled), (16, 16, None));
        told.now(0.0);
        pass(&harness, Duration::from_secs(2)).await;
        assert_eq!((meter.in_use(), leased().await), (0, 0));
    };
    beside(&harness, watch).await;
    assert_eq!(meter.most(), 16);
}

#[tokio::test]
async fn a_governor_and_slots_that_are_set_limit_together() {
    let (meter, told) = (Meter::default(), Told(Arc::new(Mutex::new(Room::of(0.5, "half")))));
    let harness = Harness::new(|worker| {
        meter.handler(worker.slots(4).partition(Partition::new("p")).governor(told.clone()), "k", 1)
    })
    .unwrap();
    push(&harness, "p", "k", 500, 500).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        assert_eq!(meter.in_use(), 2);
        harness.worker().set_slots(12).unwrap();
        pass(&harness, Duration::from_secs(2)).await;
        assert_eq!(meter.in_use(), 6);
        harness.worker().set_slots(1).unwrap();
        pass(&harness, millis(1000)).await;
        assert_eq!(meter.in_use(), 1);
    };
    beside(&harness, watch).await;
}
