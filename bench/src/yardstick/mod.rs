//! Hand-written clients, one file per backend: the yardsticks that our side is measured with.
//!
//! A yardstick provides what its scenario needs, with the guarantees that ours declares (durability, unique
//! ids, push order, strict priorities, leases that end, fencing, a delivery count), and nothing else: no
//! groups, delays, deduplication keys, dead letters, limits or telemetry. It is as fast as we know how to
//! make it. To add one, implement [`Yardstick`](crate::client::Yardstick) in a new file and name it in
//! [`crate::compare::BACKENDS`].
//!
//! For Amazon SQS, the price is measured, in requests, and not the speed: here an emulator takes its place.

pub(crate) mod memory;
pub(crate) mod postgres;
pub(crate) mod rabbitmq;
pub(crate) mod redis;
pub(crate) mod sqlite;
pub(crate) mod sqs;
