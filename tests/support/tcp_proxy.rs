//! Owns a TCP proxy that misbehaves on demand, for Postgres and Redis: slow, silent, cut, reset, refusing, or giving up after
//! so many bytes. Every fault can be switched while connections live.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How live connections are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// An orderly end of the stream.
    Close,
    /// RST.
    Reset,
}

#[derive(Default)]
struct Faults {
    latency: Mutex<Duration>,
    /// Connections stay open and nothing passes.
    silent: watch::Sender<bool>,
    refusing: AtomicBool,
    /// Bytes that may still pass, towards the target and back, before all is reset.
    left: Mutex<Option<u64>>,
    cut: watch::Sender<(u64, Option<Cut>)>,
    accepted: AtomicU64,
    live: AtomicU64,
    /// Where new connections go instead of the first target.
    moved: Mutex<Option<SocketAddr>>,
}

/// The proxy. Its connections end when it is dropped.
pub struct TcpProxy {
    pub port: u16,
    faults: Arc<Faults>,
    listening: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl TcpProxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = listen(0).expect("a free port");
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let (listening, wanted) = watch::channel(true);
        let server = tokio::spawn(accept(listener, port, target, Arc::clone(&faults), wanted));
        Self { port, faults, listening, server }
    }

    /// Each piece of data waits so long in each direction.
    pub fn latency(&self, time: Duration) {
        *self.faults.latency.lock().unwrap() = time;
    }

    /// Half-open: sockets stay, nothing passes, nothing is said. What was held back passes after `blackhole(false)`.
    pub fn blackhole(&self, on: bool) {
        self.faults.silent.send_replace(on);
    }

    /// New connections are refused by the system, as if nothing listened.
    pub async fn refuse(&self, on: bool) {
        self.listening.send_replace(!on);
        while self.faults.refusing.load(Ordering::SeqCst) != on {
            tokio::task::yield_now().await;
        }
    }

    /// After so many further bytes in both directions together, every connection that carries one more is reset.
    pub fn limit(&self, bytes: Option<u64>) {
        *self.faults.left.lock().unwrap() = bytes;
    }

    /// Ends the connections that live now with FIN.
    pub fn cut(&self) {
        self.faults.cut.send_modify(|(turn, cut)| (*turn, *cut) = (*turn + 1, Some(Cut::Close)));
    }

    /// Ends the connections that live now with RST.
    pub fn reset(&self) {
        self.faults.cut.send_modify(|(turn, cut)| (*turn, *cut) = (*turn + 1, Some(Cut::Reset)));
    }

    /// Everybody who connects from now on comes to another server; those that live are cut.
    pub fn move_to(&self, target: SocketAddr) {
        *self.faults.moved.lock().unwrap() = Some(target);
        self.reset();
    }

    /// No fault any more; what is cut stays cut.
    pub async fn heal(&self) {
        self.latency(Duration::ZERO);
        self.limit(None);
        self.blackhole(false);
        self.refuse(false).await;
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> u64 {
        self.faults.accepted.load(Ordering::SeqCst)
    }

    /// Connections that live now.
    pub fn live(&self) -> u64 {
        self.faults.live.load(Ordering::SeqCst)
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    socket.listen(1024)
}

async fn accept(listener: TcpListener, port: u16, target: SocketAddr, faults: Arc<Faults>, mut wanted: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let want = *wanted.borrow_and_update();
        if !want {
            listener = None;
        } else if listener.is_none() {
            listener = listen(port).ok();
        }
        faults.refusing.store(listener.is_none(), Ordering::SeqCst);
        let Some(open) = &listener else {
            // Wanted and not to be had: somebody holds the port for a moment.
            let pause = if want { Duration::from_millis(10) } else { Duration::from_secs(3600) };
            let _ = tokio::time::timeout(pause, wanted.changed()).await;
            continue;
        };
        tokio::select! {
            _ = wanted.changed() => {}
            Ok((client, _)) = open.accept() => {
                faults.accepted.fetch_add(1, Ordering::SeqCst);
                let target = faults.moved.lock().unwrap().unwrap_or(target);
                connections.spawn(carry(client, target, Arc::clone(&faults)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Live(Arc<Faults>);
impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, faults: Arc<Faults>) {
    faults.live.fetch_add(1, Ordering::SeqCst);
    let _live = Live(Arc::clone(&faults));
    let mut cut = faults.cut.subscribe();
    let Ok(mut server) = TcpStream::connect(target).await else { return reset(&client) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        tokio::select! {
            _ = cut.changed() => cut.borrow().1,
            ended = async { tokio::try_join!(pump(&mut from_client, &mut to_server, &faults), pump(&mut from_server, &mut to_client, &faults)) } => {
                ended.is_err().then_some(Cut::Reset)
            }
        }
    };
    if ended == Some(Cut::Reset) {
        reset(&client);
        reset(&server);
    }
}

/// The end of the stream is an RST when it is dropped.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn pump(from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin), faults: &Faults) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut silent = faults.silent.subscribe();
    loop {
        let read = from.read(&mut buffer).await?;
        let latency = *faults.latency.lock().unwrap();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        // The end of a stream is news too, and does not pass either.
        if silent.wait_for(|silent| !silent).await.is_err() {
            return Ok(());
        }
        if read == 0 {
            return to.shutdown().await;
        }
        let (pass, spent) = allowed(&mut faults.left.lock().unwrap(), read);
        to.write_all(&buffer[..pass]).await?;
        if spent {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}

/// How many of `read` bytes may pass, and whether the limit cut some off.
fn allowed(left: &mut Option<u64>, read: usize) -> (usize, bool) {
    let Some(left) = left else { return (read, false) };
    let pass = usize::try_from(*left).unwrap_or(usize::MAX).min(read);
    *left -= pass as u64;
    (pass, pass < read)
}

#[cfg(test)]
#[path = "tcp_proxy_tests.rs"]
mod tests;
