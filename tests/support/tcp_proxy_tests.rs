use super::*;
use std::io::ErrorKind;
use std::time::Instant;

/// A target that sends back what it gets.
async fn echo() -> (TcpProxy, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    let proxy = TcpProxy::start(target).await;
    let port = proxy.port;
    (proxy, SocketAddr::from(([127, 0, 0, 1], port)))
}

async fn said(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(back)
}

#[tokio::test]
async fn without_a_fault_data_and_the_end_pass_both_ways() {
    let (proxy, at) = echo().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert_eq!(said(&mut stream, b"hello").await.unwrap(), b"hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(proxy.accepted(), 1);
    while proxy.live() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn latency_counts_in_each_direction() {
    let (proxy, at) = echo().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    proxy.latency(Duration::from_millis(20));
    let began = Instant::now();
    assert!(said(&mut stream, b"slow").await.is_ok());
    assert!(began.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn a_half_open_connection_says_nothing_and_goes_on_when_healed() {
    let (proxy, at) = echo().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert!(said(&mut stream, b"a").await.is_ok());
    proxy.blackhole(true);
    let silence = tokio::time::timeout(Duration::from_millis(50), said(&mut stream, b"b")).await;
    assert!(silence.is_err());
    proxy.heal().await;
    let mut back = [0; 1];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"b");
}

#[tokio::test]
async fn live_connections_are_reset_or_cut_and_new_ones_work() {
    let (proxy, at) = echo().await;
    let (mut first, mut second) = (TcpStream::connect(at).await.unwrap(), TcpStream::connect(at).await.unwrap());
    assert!(said(&mut first, b"a").await.is_ok() && said(&mut second, b"a").await.is_ok());
    proxy.reset();
    for stream in [&mut first, &mut second] {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let mut third = TcpStream::connect(at).await.unwrap();
    assert!(said(&mut third, b"a").await.is_ok());
    proxy.cut();
    assert_eq!(third.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn new_connections_are_refused_while_old_ones_live() {
    let (proxy, at) = echo().await;
    let mut old = TcpStream::connect(at).await.unwrap();
    assert!(said(&mut old, b"a").await.is_ok());
    proxy.refuse(true).await;
    assert_eq!(TcpStream::connect(at).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(said(&mut old, b"b").await.is_ok());
    proxy.heal().await;
    assert!(said(&mut TcpStream::connect(at).await.unwrap(), b"c").await.is_ok());
}

#[tokio::test]
async fn after_the_limit_of_bytes_connections_are_reset() {
    let (proxy, at) = echo().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    proxy.limit(Some(6));
    assert!(said(&mut stream, b"abc").await.is_ok(), "three bytes each way");
    assert!(said(&mut stream, b"d").await.is_err());
    proxy.limit(None);
    assert!(said(&mut TcpStream::connect(at).await.unwrap(), b"more than six").await.is_ok());
}
