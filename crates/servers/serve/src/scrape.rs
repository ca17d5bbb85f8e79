//! `GET /metrics` over HTTP, the only request of Prometheus; others are refused. Time and memory
//! for each connection are bounded.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use manylogs_operate::control;
use manylogs_operate::metrics::{CONTENT_TYPE, exposition};

/// Time limit for the arrival of a request, and again for sending its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Pause after a failed connection, for instance when no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers at `listener`, from a thread of its own, with the metrics of the server of `device`.
///
/// # Errors
/// If no thread can be started.
pub fn answer_scrapes(listener: TcpListener, device: PathBuf) -> io::Result<()> {
    let serve = move || {
        for stream in listener.incoming() {
            let answered = stream.and_then(|stream| answer(&stream, &device));
            // A client that has left or was too slow will ask again.
            answered.unwrap_or_else(|_| thread::sleep(PAUSE));
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(serve).map(drop)
}

fn answer(mut stream: &TcpStream, device: &std::path::Path) -> io::Result<()> {
    let head = head(stream)?;
    let (status, kind, body) = match asked(&head) {
        Some(("GET", "/metrics")) => match control::status(device) {
            Ok(status) => ("200 OK", CONTENT_TYPE, exposition(&status)),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error}\n")),
        },
        Some(("GET", _)) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        Some(_) => ("405 Method Not Allowed", "text/plain", "GET only\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "no HTTP request\n".to_owned()),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes())
}

/// Method and path of a request.
fn asked(head: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let path = target.split('?').next()?;
    (version.starts_with("HTTP/1.") && words.next().is_none()).then_some((method, path))
}

/// Reads the head of a request, up to the empty line.
fn head(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let (until, mut head, mut part) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        // A time-out of zero is refused as invalid, which ends the connection.
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            len => head.extend_from_slice(&part[..len]),
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_http_1_are_understood() {
        assert_eq!(asked(b"GET /metrics?a=b HTTP/1.0\r\n\r\n"), Some(("GET", "/metrics")));
        assert_eq!(asked(b"POST /x HTTP/1.1\r\nA: b\r\n\r\n"), Some(("POST", "/x")));
        let bad: [&[u8]; 5] = [b"", b"GET", b"GET / HTTP/2\r\n", b"\xff / HTTP/1.1", b"A B C D"];
        for bad in bad {
            assert_eq!(asked(bad), None);
        }
    }
}
