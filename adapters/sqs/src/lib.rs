//! The Amazon SQS backend of anyqueue.

mod batch;
mod capabilities;
mod clock;
mod config;
mod error;
mod held;
mod inspect;
mod lines;
mod names;
mod pull;
mod push;
mod queues;
mod receive;
mod server;
mod settle;
mod storage;
mod wire;

pub use config::{SqsBuilder, backend};
pub use storage::SqsQueue;
