//! What the clones of a handle share.

use anyqueue::adapter::Capabilities;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::behind::Behind;
use crate::capabilities::capabilities;
use crate::config::Config;
use crate::give_backs::GiveBacks;
use crate::held::Ledger;
use crate::hidden::Hidden;
use crate::join::AllJoins;
use crate::lines::Lines;
use crate::queues::Queues;
use crate::server::Server;

/// Long polls under way at once. Each takes a connection.
const MAX_POLLS: usize = 512;
/// Pulls that ask the server at once; others wait for their turn.
const MAX_SWEEPS: usize = 32;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) capabilities: Capabilities,
    pub(crate) server: Server,
    pub(crate) queues: Queues,
    pub(crate) ledger: Ledger,
    pub(crate) lines: Lines,
    pub(crate) given_back: GiveBacks,
    pub(crate) behind: Behind,
    pub(crate) hidden: Hidden,
    pub(crate) poll_room: Semaphore,
    pub(crate) sweeps: Semaphore,
    pub(crate) polls: TaskTracker,
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
            ledger: Ledger::default(),
            lines: Lines::default(),
            given_back: GiveBacks::default(),
            behind: Behind::default(),
            hidden: Hidden::default(),
            poll_room: Semaphore::new(MAX_POLLS),
            sweeps: Semaphore::new(MAX_SWEEPS),
            polls: TaskTracker::new(),
            closed: CancellationToken::new(),
            joins: AllJoins::default(),
            calls: TaskTracker::new(),
            config,
        }
    }
}
