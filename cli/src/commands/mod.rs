//! The commands, a file for each.

pub(crate) mod amend;
pub(crate) mod audit;
pub(crate) mod bench;
#[cfg(feature = "conformance")]
pub(crate) mod capabilities;
#[cfg(feature = "conformance")]
pub(crate) mod conformance;
mod control;
pub(crate) mod cron;
pub(crate) mod dead;
pub(crate) mod doctor;
mod keep;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod pages;
pub(crate) mod pause;
pub(crate) mod peek;
pub(crate) mod pull;
pub(crate) mod purge;
pub(crate) mod push;
mod push_options;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod supervise;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod transfer;
pub(crate) mod work;
pub(crate) mod workers;

use anyqueue::{PartitionId, Queue};

use crate::failure::Failure;
use crate::output::Output;

/// Notes that nothing was found, or that the queue is paused, and returns the failure.
async fn nothing(queue: &Queue, name: &PartitionId, output: Output) -> Failure {
    if !note_pause(queue, name, output).await {
        output.note(&format!("{name}: no message found"));
    }
    Failure::Nothing
}

/// Notes whether the queue is paused, for users who wait for its messages.
async fn note_pause(queue: &Queue, name: &PartitionId, output: Output) -> bool {
    let live = name.live();
    let is_paused = queue.capabilities().pause && queue.is_paused(&live).await.unwrap_or(false);
    if is_paused {
        output.note(&format!("{live} is paused and delivers nothing: see `anyqueue resume`"));
    }
    is_paused
}
