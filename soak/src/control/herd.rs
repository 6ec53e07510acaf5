//! The worker processes, and what is done to them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};

use super::record::now_ns;
use super::worker::{VALID, name};
use crate::backends::Result;
use crate::open::Places;

/// How many worker processes live at once.
pub(super) const WORKERS: usize = 3;

/// The time between two kills or freezes.
const PAUSE_MS: Range<u64> = 1500..5000;
/// How long a freeze is that does not cost a process its permits: shorter than the time from the end of its
/// tasks to the end of its permits.
const SHORT_MS: Range<u64> = 50..400;
/// How much longer a long freeze is than permits are valid.
const BEYOND_MS: Range<u64> = 1000..4000;
/// How long a process may take to end when it is told to.
const FAREWELL: Duration = Duration::from_secs(45);

/// How a process was disrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disruption {
    Killed,
    /// Frozen so briefly that its permits stayed its own all the time.
    Frozen,
    /// Frozen until its permits were no longer its own.
    FrozenBeyond,
}

/// What was done to a process, from when until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disrupted {
    pub(super) process: u32,
    pub(super) how: Disruption,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

/// One of the processes.
#[derive(Debug)]
struct Member {
    number: u32,
    pid: Pid,
    child: Child,
    /// Open as long as the process is to live. Kept apart from the child, which closes its own handle when it
    /// is waited for.
    _stdin: Option<ChildStdin>,
}

/// All worker processes.
#[derive(Debug)]
pub(crate) struct Herd {
    places: Places,
    record: PathBuf,
    living: Vec<Member>,
    started: u32,
    disrupted: Vec<Disrupted>,
    /// Processes that ended without being told to.
    surprises: Vec<String>,
}

impl Herd {
    pub(super) fn start(places: Places, record: PathBuf) -> Result<Self> {
        let (living, disrupted, surprises) = (Vec::new(), Vec::new(), Vec::new());
        let mut herd = Self { places, record, living, started: 0, disrupted, surprises };
        for _ in 0..WORKERS {
            herd.add()?;
        }
        Ok(herd)
    }

    fn add(&mut self) -> Result<()> {
        self.started += 1;
        let number = self.started;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", "--number", &number.to_string(), "--record"])
            .arg(&self.record)
            .args(self.places.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or("a worker process has no number")?;
        self.living.push(Member { number, pid, _stdin: child.stdin.take(), child });
        Ok(())
    }

    /// Returns the names of those that live.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.living.iter().map(|member| name(member.number)).collect();
        names.sort();
        names
    }

    pub(super) fn disrupted(&self) -> &[Disrupted] {
        &self.disrupted
    }

    /// Returns how often each kind of disruption occurred.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let count = |how| self.disrupted.iter().filter(|disrupted| disrupted.how == how).count();
        BTreeMap::from([
            ("killed", count(Disruption::Killed)),
            ("frozen", count(Disruption::Frozen)),
            ("frozen_beyond_their_permits", count(Disruption::FrozenBeyond)),
        ])
    }

    /// Disrupts processes one after the other until the given time. Afterwards all live and none is frozen.
    pub(super) async fn disrupt(&mut self, mut rng: fastrand::Rng, until: Instant) -> Result<()> {
        loop {
            pause(rng.u64(PAUSE_MS)).await;
            if Instant::now() >= until {
                return Ok(());
            }
            self.replace_the_dead()?;
            let place = rng.usize(0..self.living.len());
            match rng.u8(0..5) {
                0..3 => self.kill(place).await?,
                3 => self.freeze(place, Disruption::Frozen, rng.u64(SHORT_MS)).await?,
                _ => {
                    let beyond = Duration::from_millis(rng.u64(BEYOND_MS));
                    let ms = u64::try_from((VALID + beyond).as_millis())?;
                    self.freeze(place, Disruption::FrozenBeyond, ms).await?;
                }
            }
        }
    }

    /// Replaces processes that ended although nobody killed them. Each of these is a finding.
    pub(super) fn replace_the_dead(&mut self) -> Result<()> {
        let mut dead = Vec::new();
        for (place, member) in self.living.iter_mut().enumerate() {
            if let Some(status) = member.child.try_wait()? {
                self.surprises.push(format!("{} ended by itself: {status}", name(member.number)));
                dead.push(place);
            }
        }
        for place in dead.into_iter().rev() {
            self.living.swap_remove(place);
            self.add()?;
        }
        Ok(())
    }

    async fn kill(&mut self, place: usize) -> Result<()> {
        let mut member = self.living.swap_remove(place);
        let from_ns = now_ns();
        member.child.kill().await?;
        let (process, how) = (member.number, Disruption::Killed);
        self.disrupted.push(Disrupted { process, how, from_ns, until_ns: u64::MAX });
        self.add()
    }

    async fn freeze(&mut self, place: usize, how: Disruption, ms: u64) -> Result<()> {
        let Some(member) = self.living.get(place) else { return Ok(()) };
        // Timed from outside, so that the recorded time is no shorter than the freeze was.
        let from_ns = now_ns();
        kill_process(member.pid, Signal::STOP)?;
        pause(ms).await;
        kill_process(member.pid, Signal::CONT)?;
        self.disrupted.push(Disrupted { process: member.number, how, from_ns, until_ns: now_ns() });
        Ok(())
    }

    /// Tells all processes to end, and returns what went wrong with them, now or before.
    pub(super) async fn end(mut self) -> Result<Vec<String>> {
        self.replace_the_dead()?;
        for member in &self.living {
            kill_process(member.pid, Signal::TERM)?;
        }
        for mut member in self.living {
            let how = match tokio::time::timeout(FAREWELL, member.child.wait()).await {
                Ok(status) => status?,
                Err(_) => ExitStatus::from_raw(Signal::KILL.as_raw()),
            };
            if !how.success() {
                self.surprises
                    .push(format!("{} was told to end, and did so with {how}", name(member.number)));
            }
        }
        Ok(self.surprises)
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
