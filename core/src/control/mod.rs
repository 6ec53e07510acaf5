//! Small shared entries on which processes agree: which workers are alive, what is due, how many may run at
//! once.
//!
//! A [`ControlStore`] keeps entries under keys, each with a [version](Version). A change states the version
//! that it expects, so if two changes of one entry race, one is refused and sees what the other wrote. An
//! entry can have a time to live, after which it is gone. Time is the server's, and each result says what it
//! is. Registries of workers, schedules and limits need no more than this; the crate `anyqueue-control` has
//! them.
//!
//! ```
//! use anyqueue::Queue;
//! use anyqueue::control::{Applied, Change, Expect, Key};
//! use std::time::Duration;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! let store = queue.control()?;
//! let key = Key::new("leader")?;
//!
//! let mine = Change::put(key.clone(), Expect::Absent, "host 7").with_ttl(Duration::from_secs(15));
//! assert_eq!(store.apply(mine).await?.value, Applied::Done);
//!
//! let theirs = Change::put(key.clone(), Expect::Absent, "host 8");
//! let Applied::Conflict(Some(entry)) = store.apply(theirs).await?.value else { panic!("two leaders") };
//! assert_eq!(entry.value, "host 7");
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```

mod change;
mod entry;
mod storage;

pub use change::{Applied, Change, Expect};
pub use entry::{Entry, Key, MAX_CONTROL_KEY_BYTES, MAX_CONTROL_VALUE_BYTES, Stamped, Version};
pub use storage::{ControlStorage, MAX_CONTROL_CALL_BYTES, MAX_CONTROL_CHANGES};

pub use crate::queue::ControlStore;
