//! Starts private servers, prints the variables that point suites at them, and keeps them until it is
//! interrupted.

use std::io::Write as _;
use std::process::ExitCode;

use anyqueue_testkit::{Error, Ministack, Postgres, Program, RabbitMq, Redis, Server};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: anyqueue-testkit SERVER...   (postgres, rabbitmq, redis, sqs)";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("anyqueue-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut servers = Vec::new();
    for name in &names {
        let Some(started) = start(name).await else { break };
        servers.push(started?);
    }
    if servers.is_empty() || servers.len() < names.len() {
        eprintln!("{USAGE}");
        return Ok(ExitCode::FAILURE);
    }
    let mut out = std::io::stdout();
    for (variable, server) in &servers {
        writeln!(out, "{variable}={}", server.url())?;
    }
    out.flush()?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the server of this name, and returns it with the variable that announces it.
async fn start(name: &str) -> Option<Result<(&'static str, Server), Error>> {
    Some(match name {
        "postgres" => known(Postgres::new()).await,
        "rabbitmq" => known(RabbitMq::new()).await,
        "redis" => known(Redis::new()).await,
        "sqs" => known(Ministack::new()).await,
        _ => return None,
    })
}

async fn known(program: impl Program) -> Result<(&'static str, Server), Error> {
    Ok((program.variable(), Server::start(program).await?))
}
