//! What the tasks of a storage share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::consumer_connection::ConsumerConnection;
use crate::names::Names;
use crate::publisher::Publisher;
use crate::unseen::Unseen;

/// What the tasks of a storage share.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) names: Names,
    pub(crate) consumers: ConsumerConnection,
    pub(crate) publisher: Publisher,
    pub(crate) closed: CancellationToken,
    pub(crate) unseen: Arc<Unseen>,
}
