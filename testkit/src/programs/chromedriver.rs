//! `ChromeDriver`, which drives Chromium in tests of web pages.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use async_trait::async_trait;

use super::wire;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::program::{Program, find_program, version_of};

const NAME: &str = "chromedriver";
const BROWSER: &str = "chromium";

/// `ChromeDriver` for the installed Chromium. The browsers that it starts belong to its process group, so
/// they end with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chromedriver;

impl Chromedriver {
    /// `ChromeDriver` as installed.
    pub fn new() -> Self {
        Self
    }

    fn find(self) -> Result<PathBuf> {
        let found = find_program(NAME, &[]).filter(|_| find_program(BROWSER, &[]).is_some());
        found.ok_or(Error::Missing { program: NAME, install: self.install() })
    }
}

#[async_trait]
impl Program for Chromedriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variable(&self) -> &'static str {
        "ANYQUEUE_TEST_WEBDRIVER_URL"
    }

    async fn version(&self) -> Result<String> {
        version_of(&self.find()?).await
    }

    fn command(&self, place: &Place) -> Result<Command> {
        let mut command = place.command(self.find()?);
        command.arg(format!("--port={}", place.addr().port()));
        // Chromium keeps settings and crash reports in the home folder; here they are removed with the rest.
        command
            .env("HOME", place.dir())
            .env("XDG_CONFIG_HOME", place.dir())
            .env("XDG_CACHE_HOME", place.dir());
        Ok(command)
    }

    async fn ready(&self, place: &Place) -> io::Result<()> {
        let request = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        wire::expect(place.addr(), request, b"HTTP/1.1 200").await
    }

    /// The endpoint of `WebDriver`.
    fn url(&self, place: &Place) -> String {
        format!("http://{}", place.addr())
    }
}
