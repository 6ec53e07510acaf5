//! Connections that answer counts, lists and pages, beside the writer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyqueue::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::connect;
use crate::error::ERRORS;

/// How many there are at most; more requests wait for one.
const READERS: u32 = 2;

/// Opened as they are needed.
#[derive(Debug)]
pub(crate) struct Readers {
    config: Config,
    places: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(config: &Config) -> Self {
        Self { config: config.clone(), places: Semaphore::new(READERS as usize), idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on a thread where blocking is fine.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _place = self.places.acquire().await.map_err(|_| Error::closed())?;
        let (conn, config) = (self.idle().pop(), self.config.clone());
        let (conn, answer) = blocking(move || {
            let read = || {
                let conn = conn.map_or_else(|| connect::reader(&config), Ok)?;
                let answer = read(&conn);
                Ok((conn, answer))
            };
            let answer = read();
            // Else it would tell of a file that nobody else sees, or take that for a fault of the disk.
            config.identity.look_closely(&config.path).and(answer)
        })
        .await?;
        if answer.is_ok() {
            self.idle().push(conn);
        }
        answer
    }

    /// Waits for those that read, and closes all.
    pub(crate) async fn close(&self) {
        if let Ok(all) = self.places.acquire_many(READERS).await {
            self.places.close();
            drop(all);
        }
        self.idle().clear();
    }
}

/// Runs what blocks where it harms nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = |error| {
        ERRORS.error(ErrorKind::Internal, "a thread that read the file ended early").with_source(error)
    };
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}
