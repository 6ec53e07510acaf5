//! The child's own side: it plays its role until its parent is gone.

use std::process::ExitCode;
use std::time::Duration;

use anyqueue::adapter::PullRequest;
use anyqueue::{Error, PartitionId, Result};

use super::event::{ADDRESS, ChildEvent, ROLE, Role, say};
use super::roles;
use crate::harness::Harness;

/// Plays the role that the environment names, if it names one. Then this process is a child, and `main` must
/// end with the returned code. [`main`](crate::main) begins with this call, and so must your own `main` if it
/// runs cases with [`Options::with_children`].
///
/// [`Options::with_children`]: crate::Options::with_children
pub fn run_if_child<H: Harness>() -> Option<ExitCode> {
    let (role, address) = (std::env::var(ROLE).ok()?, std::env::var(ADDRESS).ok()?);
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let played = match (runtime, serde_json::from_str(&role)) {
        (Ok(runtime), Ok(role)) => runtime.block_on(play::<H>(&address, role)),
        (Err(error), _) => Err(Error::invalid(error.to_string())),
        (_, Err(error)) => Err(Error::invalid(error.to_string())),
    };
    if let Err(error) = played {
        say(&ChildEvent::Failed { error: error.to_string() });
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

/// Ends the process when its parent is gone. This runs in a thread, because reading standard input cannot be
/// cancelled.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

async fn play<H: Harness>(address: &str, role: Role) -> Result<()> {
    let storage = H::attach(address).await?;
    match role {
        Role::Pusher { partition, count } => roles::push(&*storage, &partition, count).await?,
        Role::Consumer { partition, count, max, lease_ms, remove } => {
            let request = PullRequest::new(max, Duration::from_secs(1), Duration::from_millis(lease_ms));
            roles::consume(&*storage, &PartitionId::new(&partition)?, count, &request, remove).await?;
        }
        Role::BatchPusher { partition, batch } => roles::push_batches(&*storage, &partition, batch).await?,
        Role::Relay { partition, lease_ms } => roles::relay(&*storage, &partition, lease_ms).await?,
        Role::Ender { partition, lease_ms } => roles::end(&*storage, &partition, lease_ms).await?,
        Role::GroupHolder { partition, members, lease_ms } => {
            let request = PullRequest::new(members, Duration::from_secs(1), Duration::from_millis(lease_ms))
                .with_group_members(members);
            roles::consume(&*storage, &PartitionId::new(&partition)?, members, &request, false).await?;
        }
        Role::LateConsumer { partition, count, lease_ms, hold_ms } => {
            roles::consume_late(&*storage, &partition, count, lease_ms, hold_ms).await?;
        }
    }
    say(&ChildEvent::Done);
    std::future::pending().await
}
