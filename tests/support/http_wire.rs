//! Owns just enough HTTP/1.1 for the fault proxies: one message in, one message out, connections kept alive.

use std::io::{Error, ErrorKind, Result};
use std::sync::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub type Connection = BufReader<TcpStream>;

pub struct Message {
    /// Request line or status line.
    pub start: String,
    pub body: Vec<u8>,
}

/// The next message, none when the other side has closed in between.
pub async fn read(from: &mut Connection) -> Result<Option<Message>> {
    let mut start = String::new();
    if from.read_line(&mut start).await? == 0 {
        return Ok(None);
    }
    let (mut length, mut chunked) = (0_usize, false);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(':') {
            None if line.is_empty() => break,
            Some(("content-length", value)) => length = value.trim().parse().map_err(|_| Error::from(ErrorKind::InvalidData))?,
            Some(("transfer-encoding", value)) => chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let mut line = String::new();
            from.read_line(&mut line).await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| Error::from(ErrorKind::InvalidData))?;
            let mut chunk = vec![0; size + 2];
            from.read_exact(&mut chunk).await?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        body.resize(length, 0);
        from.read_exact(&mut body).await?;
    }
    Ok(Some(Message { start: start.trim_end().to_owned(), body }))
}

pub async fn write(to: &mut Connection, start: &str, body: &[u8]) -> Result<()> {
    let head = format!("{start}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    to.write_all(&[head.as_bytes(), body].concat()).await?;
    to.flush().await
}

/// Posts to one address over connections that are kept.
pub struct Client {
    authority: String,
    path: String,
    idle: Mutex<Vec<Connection>>,
}

impl Client {
    /// Takes `http://host:port/path`.
    pub fn new(url: &str) -> Self {
        let rest = url.strip_prefix("http://").expect("the proxy speaks plain http to its upstream");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        Self { authority: authority.to_owned(), path: format!("/{path}"), idle: Mutex::default() }
    }

    pub async fn post(&self, body: &[u8]) -> Result<Vec<u8>> {
        let start = format!("POST {} HTTP/1.1\r\nhost: {}", self.path, self.authority);
        loop {
            let kept = self.idle.lock().unwrap().pop();
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => BufReader::new(TcpStream::connect(&self.authority).await?),
            };
            let answer = match write(&mut connection, &start, body).await {
                Ok(()) => read(&mut connection).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(Some(message)) => {
                    self.idle.lock().unwrap().push(connection);
                    return Ok(message.body);
                }
                // The upstream gave a kept connection up; a fresh one decides.
                Ok(None) | Err(_) if reused => {}
                Ok(None) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error),
            }
        }
    }
}
