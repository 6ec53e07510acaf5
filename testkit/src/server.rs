//! A private server, and its life.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Doing, Error, Result};
use crate::place::Place;
use crate::process::{Process, TooLate};
use crate::program::{Program, StopSignal};
use crate::reaper::Reaper;

/// How long a server may take until it is ready. `RabbitMQ` takes six seconds on an idle machine, and took
/// forty on one with eight tasks per processor.
const START_LIMIT: Duration = Duration::from_mins(3);
/// How long it may take to stop in an orderly way.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// How long the system may take to freeze or kill processes.
const SIGNAL_LIMIT: Duration = Duration::from_mins(1);
/// How long one check whether it is ready may take.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two checks.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// A private server: a child process on a free loopback port with its data in a temporary folder.
///
/// Its address stays the same through [`restart`](Self::restart). When it is dropped, or when this process
/// ends in whatever way, all its processes are killed and its data is removed. Dropping blocks for the
/// milliseconds that this takes.
///
/// It can be shared: its methods wait for one another. It is not bound to a runtime, so it can live in a
/// static and serve tests that have a runtime each. If a future is dropped, [`restart`](Self::restart) and
/// [`kill`](Self::kill) still work on the server.
#[derive(Debug)]
pub struct Server {
    program: Box<dyn Program>,
    version: String,
    url: String,
    state: Mutex<State>,
    place: Place,
}

/// The reaper is dropped first: it kills the processes, so that the leader can be collected.
#[derive(Debug)]
struct State {
    reaper: Reaper,
    process: Option<Process>,
}

impl Server {
    /// Starts a server, and returns once it serves clients.
    ///
    /// # Errors
    /// [`Error::Missing`] if the program is not installed; otherwise what went wrong, with the end of the
    /// server's log.
    pub async fn start(program: impl Program) -> Result<Self> {
        let program: Box<dyn Program> = Box::new(program);
        let version = program.version().await?;
        let folder = tempfile::Builder::new().prefix("anyqueue-").tempdir();
        let folder = folder.doing(|| "make a temporary folder".to_owned())?;
        let reaper = Reaper::start(folder.path(), program.clean_up())?;
        let missing = || Error::Missing { program: program.name(), install: program.install() };
        let place = Place::new(folder.keep(), program.ports(), program.account(), missing)?;
        program.prepare(&place).await?;
        let url = program.url(&place);
        let state = Mutex::new(State { reaper, process: None });
        let server = Self { program, version, url, state, place };
        server.up(&mut *server.state.lock().await).await?;
        Ok(server)
    }

    /// The URL at which clients reach the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address that the server listens on, for a [`Proxy`](crate::Proxy) to connect to.
    pub fn addr(&self) -> SocketAddr {
        self.place.addr()
    }

    /// Another port of the server, as [`Place::port`].
    pub(crate) fn port(&self, index: usize) -> SocketAddr {
        self.place.port(index)
    }

    /// The place where the server lives.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The command that starts the server.
    pub(crate) fn command(&self) -> Result<std::process::Command> {
        self.program.command(&self.place)
    }

    /// The program's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file with everything that the server wrote to its standard output and error.
    pub fn log(&self) -> PathBuf {
        self.place.log()
    }

    /// Asks the server to stop, and waits until all its processes are gone. A frozen server is thawed for
    /// this; a server that is not running is fine.
    ///
    /// # Errors
    /// [`Error::Stop`] if it takes more than a minute. The server is then still running.
    pub async fn stop(&self) -> Result<()> {
        self.down(&mut *self.state.lock().await).await
    }

    /// Kills all processes of the server at once, as `kill -9` does. A server that is not running is fine.
    ///
    /// # Errors
    /// [`Error::Signal`] if the system does not kill them in time.
    pub async fn kill(&self) -> Result<()> {
        let state = &mut *self.state.lock().await;
        if let Some(process) = &mut state.process {
            process.kill(SIGNAL_LIMIT).await.map_err(|late| self.disobeyed("SIGKILL", late))?;
            state.process = None;
            state.reaper.forget()?;
        }
        Ok(())
    }

    /// Starts the server again with the same data and address, and returns once it serves clients. A running
    /// server is stopped first.
    ///
    /// # Errors
    /// As [`stop`](Self::stop) and [`start`](Self::start).
    pub async fn restart(&self) -> Result<()> {
        let state = &mut *self.state.lock().await;
        self.down(state).await?;
        self.up(state).await
    }

    /// Stops all processes of the server where they are (`SIGSTOP`). Its connections stay, and nothing is
    /// answered; the system still accepts new connections and bytes until its buffers are full.
    ///
    /// # Errors
    /// [`Error::Down`] if the server is not running; [`Error::Signal`] if the system does not stop them in
    /// time.
    pub async fn freeze(&self) -> Result<()> {
        let state = &mut *self.state.lock().await;
        let process = state.process.as_ref().ok_or(Error::Down { program: self.program.name() })?;
        let frozen = process.freeze(SIGNAL_LIMIT).await.map_err(|late| self.disobeyed("SIGSTOP", late))?;
        // A frozen process cannot notice that its parent died, and exit by itself.
        state.reaper.watch(process.leader(), &frozen)
    }

    /// Lets a frozen server continue (`SIGCONT`). A server that is not frozen is fine.
    ///
    /// # Errors
    /// [`Error::Down`] if the server is not running.
    pub async fn thaw(&self) -> Result<()> {
        let state = &mut *self.state.lock().await;
        let process = state.process.as_ref().ok_or(Error::Down { program: self.program.name() })?;
        process.thaw();
        state.reaper.watch(process.leader(), &[])
    }

    async fn up(&self, state: &mut State) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.place.log());
        let log = log.doing(|| "open the server's log".to_owned())?;
        let process = Process::spawn(self.program.command(&self.place)?, &log)?;
        state.reaper.watch(process.leader(), &[])?;
        let process = state.process.insert(process);
        let Err(reason) = self.until_ready(process).await else { return Ok(()) };
        let log = self.place.log_tail();
        process.kill(SIGNAL_LIMIT).await.map_err(|late| self.disobeyed("SIGKILL", late))?;
        state.process = None;
        state.reaper.forget()?;
        Err(Error::Start { program: self.program.name(), reason, log })
    }

    async fn until_ready(&self, process: &Process) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let last = match timeout(PROBE_LIMIT, self.program.ready(&self.place)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {PROBE_LIMIT:?}"),
            };
            if let Some(how) = process.ended() {
                return Err(format!("it ended ({how})"));
            }
            if Instant::now() >= deadline {
                return Err(format!("it was not ready within {START_LIMIT:?}: {last}"));
            }
            sleep(PROBE_PAUSE).await;
        }
    }

    async fn down(&self, state: &mut State) -> Result<()> {
        let Some(process) = &mut state.process else { return Ok(()) };
        let signal = match self.program.stop_signal() {
            StopSignal::Terminate => Signal::TERM,
            StopSignal::Interrupt => Signal::INT,
        };
        process.stop(signal, STOP_LIMIT).await.map_err(|TooLate| Error::Stop {
            program: self.program.name(),
            limit: STOP_LIMIT,
            log: self.place.log_tail(),
        })?;
        state.process = None;
        state.reaper.forget()
    }

    fn disobeyed(&self, signal: &'static str, _: TooLate) -> Error {
        Error::Signal { program: self.program.name(), signal, limit: SIGNAL_LIMIT }
    }
}
