//! `anyqueue serve`: offers the queues over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyqueue::{CancellationToken, PartitionOptions};
use anyqueue_server::{ClientCertificates, Server, Tls};
use anyqueue_worker::Retry;
use clap::Args;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use tokio::net::TcpListener;

use super::control::ControlArgs;
use super::keep::KeepArgs;
use crate::failure::{Failure, Result};
use crate::open::Create;
use crate::output::Output;
use crate::session::Session;
use crate::signals::end_signal;

const HELP: &str = "\
Examples:
  anyqueue serve --url sqlite:jobs.db --ledger
  curl -sd '{\"payload\":\"hello\"}' -H 'content-type: application/json' localhost:7780/v1/partitions/mail/messages
  curl -sd '{\"partitions\":[\"mail\"],\"wait_ms\":20000}' -H 'content-type: application/json' localhost:7780/v1/pull
  anyqueue serve --listen 0.0.0.0:7780 --token-file tokens --tls-cert server.crt --tls-key server.key
  anyqueue serve --listen 0.0.0.0:7780 --tls-cert server.crt --tls-key server.key --tls-client-ca clients.crt

The requests are described by /openapi.json of the service, and in docs/http.md.

By default it serves only this machine. With another address for --listen, every request needs a token, from
`anyqueue tokens` or --token-file, and the service needs TLS: either its own, with --tls-cert, or that of something in
front of it, such as a proxy, with --insecure. A token file has one token on each line, of at least 16 characters, which
may do everything; a # begins a comment.

With --tls-client-ca, a client with a certificate that `anyqueue tokens bind` has bound to a token needs no token. Clients
without a certificate still need one; with --require-client-certificates they are refused. Certificates of another
authority, and expired ones, are refused. If a request carries a token, that counts, whatever the certificate.

On backends with a control store, or with --control-url, deliveries can be settled at any other service over the same
queues, and after a restart. On RabbitMQ and SQS, deliveries stay with the service that handed them out.

On SIGTERM or SIGINT it accepts no more requests, finishes those under way, and ends.";

/// Serves the queues over HTTP, for programs in any language
#[derive(Args)]
#[command(after_help = HELP)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7780")]
    listen: SocketAddr,
    /// A file with tokens that may do everything; every request then needs a token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Requires a token for every request, even while there is none; by default, only if there is one when it
    /// starts
    #[arg(long)]
    require_tokens: bool,
    /// Speaks TLS with this certificate, in PEM, followed by its intermediate certificates
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Asks clients for certificates of these authorities, in PEM: a client whose certificate is bound to a
    /// token needs no token, all others do
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Refuses clients without a certificate, even if they have a token
    #[arg(long, requires = "tls_client_ca")]
    require_client_certificates: bool,
    /// Serves other machines without TLS: anybody on the way can read and change everything
    #[arg(long, conflicts_with = "tls_cert")]
    insecure: bool,
    /// Refuses every request that changes something
    #[arg(long)]
    read_only: bool,
    /// The most connections at once; half as many requests can wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    max_connections: u32,
    /// How often a failed message is tried again; a message's own number takes precedence
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,
    /// The delay before the first retry; it doubles with each
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    retry_delay: Duration,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    control: ControlArgs,
}

/// How often the measurements are condensed, so that they take no room while nobody reads them.
const UPKEEP: Duration = Duration::from_secs(5);

impl Serve {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let tokens = self.tokens()?;
        let tls = self.tls()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let metrics = gather()?;
        let keep = self.keep.keep_on(session);
        let options = self.keep.with_kinds(PartitionOptions::default());
        let queue = session.queue_with(Create::AsUrlSays, options, keep).await?;
        session.warn_of_ledger().await?;
        let control = self.control.open_if_any(&queue).await?;
        let mut builder = Server::builder(queue.clone())
            .retry(Retry::exponential(self.retry_delay).max(self.retries))
            .max_connections(self.max_connections as usize)
            .insecure(self.insecure)
            .require_tokens(self.require_tokens)
            .read_only(self.read_only);
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        for token in tokens {
            builder = builder.token(token);
        }
        match &control {
            Some(control) => {
                builder = builder.control(control.store.clone());
                // A backend with a control store may still lack what schedules need.
                if let Ok(scheduler) = control.scheduler(&queue) {
                    builder = builder.scheduler(scheduler);
                }
            }
            None => session.output.note(
                "this backend has no control store: deliveries cannot be settled after a restart, and their messages come back; --control-url helps",
            ),
        }
        let render = metrics.clone();
        let server = builder.metrics(move || render.render()).build().await?;
        let listener = TcpListener::bind(self.listen)
            .await
            .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", self.listen)))?;
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let serving = server.serve(listener, end.clone());
        tokio::pin!(serving);
        tokio::spawn(upkeep(metrics));
        let result = tokio::select! {
            biased;
            // The service refuses an address that is too open before anything is printed.
            end = &mut serving => end,
            said = said(session.output, scheme, address, end) => match said? {},
        };
        let result = result.map_err(|error| Failure::Usage(error.to_string()));
        let let_go = match control {
            Some(control) => control.close().await,
            None => Ok(()),
        };
        let closed = queue.close().await;
        result.and(let_go).and(closed.map_err(Failure::from))
    }

    fn tls(&self) -> Result<Option<Tls>> {
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let Some((certificate, key)) = files else { return Ok(None) };
        let tls = Tls::from_files(certificate, key).and_then(|tls| match &self.tls_client_ca {
            Some(authorities) => tls.with_client_authority(authorities, self.client_certificates()),
            None => Ok(tls),
        });
        tls.map(Some).map_err(|error| Failure::Usage(error.message().to_owned()))
    }

    const fn client_certificates(&self) -> ClientCertificates {
        if self.require_client_certificates {
            ClientCertificates::Required
        } else {
            ClientCertificates::Optional
        }
    }

    fn tokens(&self) -> Result<Vec<String>> {
        let Some(file) = &self.token_file else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::Usage(format!("cannot read the tokens in {}: {error}", file.display()))
        })?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let tokens: Vec<_> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if tokens.is_empty() {
            return Err(Failure::Usage(format!("there are no tokens in {}", file.display())));
        }
        Ok(tokens)
    }
}

/// Prints where the service listens, then waits for a signal, and makes the service end.
async fn said(
    output: Output,
    scheme: &str,
    address: SocketAddr,
    end: CancellationToken,
) -> Result<std::convert::Infallible> {
    output.result(
        &format!("listening on {scheme}://{address}"),
        &json!({ "listening": address.to_string() }),
    )?;
    end_signal().await?;
    end.cancel();
    std::future::pending().await
}

fn gather() -> Result<PrometheusHandle> {
    PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| Failure::Failed(format!("the metrics cannot be gathered: {error}")))
}

async fn upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        metrics.run_upkeep();
    }
}
