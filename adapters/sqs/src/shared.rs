//! What the clones of a handle share.

use anyqueue::adapter::Capabilities;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capabilities::capabilities;
use crate::config::Config;
use crate::group_backlog::GroupBacklog;
use crate::in_flight::InFlight;
use crate::join::AllJoins;
use crate::poll_state::PollStates;
use crate::postponed::PostponedCounts;
use crate::queues::Queues;
use crate::server::Server;
use crate::unseen_receives::UnseenReceives;

/// The most concurrent long polls. Each takes a connection.
const MAX_LONG_POLLS: usize = 512;
/// The most concurrent pulls that poll levels. Others wait for their turn.
const MAX_LEVEL_POLLS: usize = 32;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) capabilities: Capabilities,
    pub(crate) server: Server,
    pub(crate) queues: Queues,
    pub(crate) in_flight: InFlight,
    pub(crate) poll_states: PollStates,
    pub(crate) unseen_receives: UnseenReceives,
    pub(crate) group_backlog: GroupBacklog,
    pub(crate) postponed: PostponedCounts,
    pub(crate) long_poll_permits: Semaphore,
    pub(crate) level_polls: Semaphore,
    pub(crate) long_polls: TaskTracker,
    pub(crate) closed: CancellationToken,
    pub(crate) joins: AllJoins,
    pub(crate) calls: TaskTracker,
}

impl Inner {
    pub(crate) async fn new(config: Config) -> Self {
        Self {
            capabilities: capabilities(&config),
            server: Server::new(&config).await,
            queues: Queues::new(&config),
            in_flight: InFlight::default(),
            poll_states: PollStates::default(),
            unseen_receives: UnseenReceives::default(),
            group_backlog: GroupBacklog::default(),
            postponed: PostponedCounts::default(),
            long_poll_permits: Semaphore::new(MAX_LONG_POLLS),
            level_polls: Semaphore::new(MAX_LEVEL_POLLS),
            long_polls: TaskTracker::new(),
            closed: CancellationToken::new(),
            joins: AllJoins::default(),
            calls: TaskTracker::new(),
            config,
        }
    }
}
