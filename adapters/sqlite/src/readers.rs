//! Connections that read counts, lists and pages, independently of the writer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyqueue::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::connect;
use crate::error::ERRORS;

/// The most connections; further requests wait for one.
const READERS: u32 = 2;

/// Connections that are opened when they are needed.
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

    /// Reads on a thread that may block.
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
            // Otherwise it would report on a file that nobody else sees, or treat a replaced file as a disk
            // failure.
            config.identity.look_closely(&config.path).and(answer)
        })
        .await?;
        if answer.is_ok() {
            self.idle().push(conn);
        }
        answer
    }

    /// Waits for reads in progress, and closes all connections.
    pub(crate) async fn close(&self) {
        if let Ok(all) = self.places.acquire_many(READERS).await {
            self.places.close();
            drop(all);
        }
        self.idle().clear();
    }
}

/// Runs blocking work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = |error| {
        ERRORS.error(ErrorKind::Internal, "a thread that read the file ended early").with_source(error)
    };
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}
