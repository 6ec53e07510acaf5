//! The RabbitMQ backend of anyqueue.

mod actor;
mod capabilities;
mod claim;
mod config;
mod desk;
mod error;
mod feed;
mod inspect;
mod ladder;
mod link;
mod names;
mod publisher;
mod pull;
mod push;
mod serve;
mod settle;
mod storage;
mod stored;
mod token;
mod topology;

pub use config::{QueueType, RabbitMqBuilder, backend};
pub use storage::RabbitMqQueue;
