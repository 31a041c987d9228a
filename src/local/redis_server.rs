//! How the Redis of the embedded default is run: never evicting, on disk, with a password. Called by `guard`.

use std::{path::Path, time::Duration};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    child::Program,
    folder::{Folder, make_dir, write_private},
    messages::{Fault, Part},
};

const STOP: &[(Signal, Duration)] = &[(Signal::SIGTERM, Duration::from_secs(10))];

/// Writes its configuration, where the password is out of sight of `ps`.
pub(super) fn prepare(folder: &Folder, port: u16, durable: bool) -> Result<(), Fault> {
    let home = folder.dir.join(Part::Redis.word());
    make_dir(&home, 0o700)?;
    let text = format!(
        "bind 127.0.0.1\nport {port}\ndir \"{}\"\nrequirepass {}\ndaemonize no\nsave \"\"\nappendonly {}\nappendfsync everysec\n\
         maxmemory 512mb\nmaxmemory-policy noeviction\nlogfile \"\"\n",
        home.display(),
        folder.settings.redis_password,
        if durable { "yes" } else { "no" },
    );
    write_private(&home.join("redis.conf"), text.as_bytes())
}

pub(super) fn program(dir: &Path, server: &Path) -> Program {
    let home = dir.join(Part::Redis.word());
    Program {
        path: server.to_owned(),
        arguments: vec![home.join("redis.conf").display().to_string()],
        home,
        environment: vec![("LC_ALL", "C.UTF-8".into())],
        user: None,
        stop_signals: STOP,
    }
}

pub(super) fn url(password: &str, port: u16) -> String {
    format!("redis://:{password}@127.0.0.1:{port}/0")
}

/// It takes commands: no longer reading its file, and not someone else's server.
pub(super) async fn answers(password: &str, port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("AUTH {password}\r\nPING\r\n").as_bytes()).await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(&answer == b"+OK\r\n+PONG\r\n")
    };
    matches!(tokio::time::timeout(Duration::from_secs(1), ask).await, Ok(Ok(true)))
}
