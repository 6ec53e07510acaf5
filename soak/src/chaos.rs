//! Faults of the server and of the connections to it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyqueue_testkit::{Fault, Proxy};

use crate::backends::Result;
use crate::site::Site;

/// By then all queues have been created: a `kill -9` may lose a queue that was just created.
const BEFORE: Duration = Duration::from_secs(4);

/// How often each fault happened.
#[derive(Debug, Default)]
pub(crate) struct Faults(BTreeMap<&'static str, u32>);

impl Faults {
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u32> {
        &self.0
    }
}

/// Injects one fault after the other, with pauses in between, until the given time. Afterwards everything
/// works again. A file has no faults: only its users can be harmed.
pub(crate) async fn inject(site: &Site, mut rng: fastrand::Rng, until: Instant) -> Result<Faults> {
    let mut faults = Faults::default();
    let Some((server, proxy)) = site.server() else {
        tokio::time::sleep_until(until.into()).await;
        return Ok(faults);
    };
    tokio::time::sleep(BEFORE).await;
    while Instant::now() < until {
        pause(&mut rng, 1000..4000).await;
        let name = match rng.u8(0..6) {
            0 => {
                let name = site.backend().take_away(server).await?;
                pause(&mut rng, 0..2000).await;
                server.restart().await?;
                name
            }
            1 => {
                server.freeze().await?;
                pause(&mut rng, 500..5000).await;
                server.thaw().await?;
                "frozen"
            }
            2 => {
                proxy.reset_all();
                "cut"
            }
            3 => for_a_while(proxy, Fault::Stall, &mut rng, "stalled").await?,
            4 => for_a_while(proxy, Fault::DropReplies, &mut rng, "unanswered").await?,
            _ => {
                let delay = Duration::from_millis(rng.u64(1..50));
                for_a_while(proxy, Fault::Delay(delay), &mut rng, "slow").await?
            }
        };
        *faults.0.entry(name).or_default() += 1;
    }
    Ok(faults)
}

/// What the network held back must never arrive, so its connections are closed.
async fn for_a_while(
    proxy: &Proxy,
    fault: Fault,
    rng: &mut fastrand::Rng,
    name: &'static str,
) -> Result<&'static str> {
    proxy.set(fault).await?;
    pause(rng, 500..4000).await;
    proxy.reset_all();
    proxy.set(Fault::Pass).await?;
    // Whoever connected meanwhile must not wait for what has been lost.
    proxy.reset_all();
    Ok(name)
}

async fn pause(rng: &mut fastrand::Rng, milliseconds: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(milliseconds))).await;
}
