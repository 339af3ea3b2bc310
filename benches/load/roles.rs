//! What the children do: serve, after one line on standard output that says where, and end with
//! their standard input.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, Command},
    thread,
    time::Duration,
};

use codex_edge::{
    app,
    clock::Clock,
    config::{Config, Surroundings},
    lifecycle, sim,
    sim::{Action, End, Route, Rule, SimAccount, SimConfig, Simulator, StreamPlan},
    telemetry,
};

use super::{Fault, bare};

/// The accounts that the simulated upstream knows and the gateway has.
pub(crate) const ACCOUNTS: [&str; 3] = ["alice", "bob", "carol"];

/// Accounts of the crowd, a file each.
pub(crate) const CROWD: usize = 500;

/// With five more events, an answer of twenty.
const DELTAS: usize = 15;

/// A turn with this model gets four events, the last of which is its first output, then nothing.
pub(crate) const STALLING_MODEL: &str = "stalls";

pub(crate) fn serve(role: &str, arguments: &[String]) -> Result<(), Fault> {
    match (role, arguments) {
        ("serve-sim", []) => serve_sim(&few()),
        ("serve-sim-crowd", []) => serve_sim(&crowd()),
        ("serve-bare", [upstream]) => serve_bare(upstream.parse()?),
        ("serve-gateway", [upstream, folder]) => {
            serve_gateway(upstream, Path::new(folder), "", &few())
        }
        ("serve-gateway-crowd", [upstream, folder]) => {
            serve_gateway(upstream, Path::new(folder), "", &crowd())
        }
        ("serve-gateway-h2c", [upstream, folder]) => {
            serve_gateway(upstream, Path::new(folder), "h2c = true\n", &few())
        }
        ("serve-nginx", [upstream, folder]) => serve_nginx(upstream, Path::new(folder)),
        _ => Err(format!("no such role: {role} {arguments:?}").into()),
    }
}

fn few() -> Vec<String> {
    ACCOUNTS.map(str::to_owned).to_vec()
}

fn crowd() -> Vec<String> {
    (0..CROWD).map(|number| format!("a{number:03}")).collect()
}

fn serve_sim(names: &[String]) -> Result<(), Fault> {
    let runtime = tokio::runtime::Runtime::new()?;
    let stall = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
    let rule = Rule::new(Action::Stream(stall)).route(Route::Responses).model(STALLING_MODEL);
    let config = SimConfig {
        deltas: DELTAS,
        record: false,
        script: sim::Script::from(vec![rule]),
        ..SimConfig::with_accounts(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let sim = runtime.block_on(Simulator::start(config))?;
    say(sim.address(), "")?;
    wait_for_end();
    Ok(())
}

fn serve_bare(upstream: SocketAddr) -> Result<(), Fault> {
    let bound = lifecycle::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    say(bound.address, "")?;
    end_with_input();
    bare::run(upstream, bound);
    Ok(())
}

/// As `codex-edge serve` does it, with everything at its default save what `more` says of the
/// upstream.
fn serve_gateway(upstream: &str, folder: &Path, more: &str, names: &[String]) -> Result<(), Fault> {
    let (data_dir, auth_dir) = (folder.join("data"), folder.join("auth"));
    fs::create_dir_all(&auth_dir)?;
    for name in names {
        let account = SimAccount::made_up(name);
        fs::write(auth_dir.join(format!("{name}.json")), account.auth_json())?;
    }
    let toml = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\n\
         data_dir = {data_dir:?}\n[auth]\ndir = {auth_dir:?}\n\
         [upstream]\ncodex_base_url = \"http://{upstream}/backend-api/codex\"\n\
         auth_base_url = \"http://{upstream}\"\n{more}"
    );
    let file = folder.join("config.toml");
    fs::write(&file, toml)?;
    let surroundings =
        Surroundings { flag: Some(file), env: BTreeMap::new(), system_file: PathBuf::new() };
    let config = Config::load(&surroundings)?.config;
    telemetry::init(config.log)?;
    let app = app::start(config, Clock::system())?;
    let key = fs::read_to_string(data_dir.join("local.key"))?;
    say(app.first_edge(), key.trim())?;
    end_with_input();
    app.wait();
    Ok(())
}

fn serve_nginx(upstream: &str, folder: &Path) -> Result<(), Fault> {
    fs::create_dir_all(folder)?;
    // nginx wants to know its port beforehand; nobody else takes this one so soon.
    let address = lifecycle::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.address;
    let file = folder.join("nginx.conf");
    fs::write(&file, nginx_conf(folder, address, upstream))?;
    let started = Command::new("nginx").arg("-p").arg(folder).arg("-c").arg(&file).spawn();
    let mut nginx = match started {
        Ok(nginx) => nginx,
        Err(error) => {
            // Instead of the address, for the parent to show.
            println!("cannot run nginx: {error}");
            return Err(error.into());
        }
    };
    if !answers(address) {
        println!("nginx does not answer");
        stop_nginx(&mut nginx, &file)?;
        return Err("nginx does not answer".into());
    }
    say(address, "")?;
    wait_for_end();
    stop_nginx(&mut nginx, &file)
}

fn stop_nginx(nginx: &mut Child, file: &Path) -> Result<(), Fault> {
    Command::new("nginx").arg("-c").arg(file).args(["-s", "stop"]).status()?;
    nginx.wait()?;
    Ok(())
}

fn answers(address: SocketAddr) -> bool {
    (0..100).any(|_| {
        let connected = TcpStream::connect(address).is_ok();
        if !connected {
            thread::park_timeout(Duration::from_millis(20));
        }
        connected
    })
}

fn nginx_conf(folder: &Path, address: SocketAddr, upstream: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream codex {{ server {upstream}; keepalive 512; keepalive_requests 100000000; }}
    server {{
        listen {address};
        keepalive_requests 100000000;
        client_max_body_size 64m;
        location / {{
            proxy_pass http://codex;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}

fn say(address: SocketAddr, key: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{address} {key}")?;
    out.flush()
}

fn wait_for_end() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

fn end_with_input() {
    thread::spawn(|| {
        wait_for_end();
        process::exit(0);
    });
}
