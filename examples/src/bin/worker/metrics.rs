//! The smallest server that Prometheus can scrape.

use std::net::SocketAddr;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long one scrape may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Larger than the head of any scraper's request.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// Records every metric of this process and serves them. Returns the address.
pub(crate) async fn serve(address: &str) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let listener = TcpListener::bind(address).await?;
    let served = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            // One at a time, since a scraper comes only every few seconds.
            if let Ok((connection, _)) = listener.accept().await {
                // A scraper that goes away or is too slow affects nobody else.
                let _ = tokio::time::timeout(PATIENCE, answer(connection, &metrics)).await;
            }
        }
    });
    Ok(served)
}

async fn answer(mut connection: TcpStream, metrics: &PrometheusHandle) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < MAX_REQUEST_BYTES {
        if connection.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let body = metrics.render();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await?;
    connection.shutdown().await
}
