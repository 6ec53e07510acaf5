//! Erlang's port mapper, through which the nodes of a cluster find each other.

use std::io;
use std::process::Command;

use async_trait::async_trait;
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program};

const NAME: &str = "epmd";

/// A port mapper that outlives the nodes it knows.
#[derive(Debug)]
pub(crate) struct Epmd;

impl Epmd {
    fn missing(&self) -> Error {
        Error::Missing { program: NAME, install: self.install() }
    }
}

#[async_trait]
impl Program for Epmd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_EPMD_URL"
    }

    /// It has no version of its own.
    async fn version(&self) -> Result<String> {
        find_program(NAME, &[]).map(|_| String::new()).ok_or_else(|| self.missing())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(find_program(NAME, &[]).ok_or_else(|| self.missing())?);
        command.args(["-address", "127.0.0.1", "-port", &place.addr().port().to_string()]);
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        TcpStream::connect(place.addr()).await.map(drop)
    }

    fn url(&self, place: &Place) -> String {
        format!("epmd://{}/", place.addr())
    }
}
