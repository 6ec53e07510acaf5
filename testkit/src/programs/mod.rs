//! The servers that this crate knows.

mod chromedriver;
mod epmd;
mod ministack;
mod pgbouncer;
mod postgres;
mod postgres_data;
mod rabbitmq;
mod redis;
mod sentinel;
pub(crate) mod wire;

pub use chromedriver::Chromedriver;
pub(crate) use epmd::Epmd;
pub use ministack::Ministack;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use sentinel::RedisSentinel;
