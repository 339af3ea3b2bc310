//! The configuration as an operator meets it: files, environment, faults.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use codex_edge::config::{
    Config, ConfigError, EdgeProtocol, LogFormat, Problems, Proxy, RoutingMode, Surroundings,
};
use tempfile::TempDir;

/// A machine without any configuration, its home in `root`.
fn machine(root: &Path) -> Surroundings {
    let home = root.join("home").display().to_string();
    let env = BTreeMap::from([("HOME".to_owned(), home)]);
    Surroundings { flag: None, env, system_file: root.join("etc/config.toml") }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn faults(text: &str) -> Problems {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    let file = root.path().join("given.toml");
    write(&file, text);
    machine.flag = Some(file);
    let error = Config::load(&machine).unwrap_err();
    let ConfigError::Invalid(problems) = error else { unreachable!("{error}") };
    problems
}

#[test]
fn without_a_file_the_defaults_hold() {
    let root = TempDir::new().unwrap();
    let loaded = Config::load(&machine(root.path())).unwrap();
    assert_eq!(loaded.file, None);
    let config = loaded.config;
    assert_eq!(config.server.listen, ["127.0.0.1:8317".parse().unwrap()]);
    assert_eq!(config.server.data_dir, root.path().join("home/.local/share/codex-edge"));
    assert_eq!(config.auth.dir, config.server.data_dir.join("auth"));
    assert_eq!(config.limits.max_body.bytes(), 64 << 20);
    assert_eq!(config.routing.mode, RoutingMode::Pool);
    assert_eq!(config.server.protocol, EdgeProtocol::Plain);
    assert!(matches!(config.egress.proxy, Proxy::Direct));
    assert!(config.server.is_loopback_only());
}

#[test]
fn the_first_file_of_the_search_order_counts() {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    let attempts = |text: &str| format!("[routing]\nmax_attempts = {text}\n");
    let read = |machine: &Surroundings| Config::load(machine).unwrap().config.routing.max_attempts;

    write(&root.path().join("etc/config.toml"), &attempts("5"));
    assert_eq!(read(&machine).get(), 5);
    write(&root.path().join("home/.config/codex-edge/config.toml"), &attempts("6"));
    assert_eq!(read(&machine).get(), 6);
    let xdg = root.path().join("xdg");
    write(&xdg.join("codex-edge/config.toml"), &attempts("7"));
    machine.env.insert("XDG_CONFIG_HOME".to_owned(), xdg.display().to_string());
    assert_eq!(read(&machine).get(), 7);
    let named = root.path().join("named.toml");
    write(&named, &attempts("8"));
    machine.env.insert("CODEX_EDGE_CONFIG".to_owned(), named.display().to_string());
    assert_eq!(read(&machine).get(), 8);
    let flag = root.path().join("flag.toml");
    write(&flag, &attempts("9"));
    machine.flag = Some(flag);
    assert_eq!(read(&machine).get(), 9);
}

#[test]
fn a_named_file_that_is_not_there_is_an_error_that_says_what_to_do() {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    machine.flag = Some(root.path().join("absent.toml"));
    let error = Config::load(&machine).unwrap_err().to_string();
    assert!(error.contains("absent.toml cannot be read"), "{error}");
    assert!(error.contains("--config"), "{error}");
}

#[test]
fn what_is_not_toml_is_shown_with_its_line() {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    let file = root.path().join("broken.toml");
    write(&file, "[server\nlisten = 1");
    machine.flag = Some(file);
    let error = Config::load(&machine).unwrap_err().to_string();
    assert!(error.contains("broken.toml is not TOML") && error.contains("line 1"), "{error}");
}

#[test]
fn ten_faults_are_reported_at_once_each_with_file_key_and_wish() {
    let problems = faults(
        r#"
        colour = "blue"
        [server]
        listen = ["nowhere", "127.0.0.1:80"]
        admin_listen = 8318
        lisen = []
        max_sockets = 30000
        [server.tls]
        cert = "/etc/cert.pem"
        [auth]
        dir = "relative"
        parse_grace = "5 parsecs"
        [upstream]
        codex_base_url = "chatgpt.com"
        [routing]
        strategy = "random"
        max_attempts = 0
        [limits]
        max_body = 64
        [egress]
        proxy = "gopher://me:hunter2@proxy"
        "#,
    );
    let keys: Vec<&str> = problems.iter().map(|it| it.key.as_str()).collect();
    let expected = [
        "server.listen",
        "server.admin_listen",
        "server.tls.key",
        "auth.dir",
        "auth.parse_grace",
        "upstream.codex_base_url",
        "egress.proxy",
        "routing.strategy",
        "routing.max_attempts",
        "limits.max_body",
        "server.max_sockets",
        "colour",
        "server.lisen",
    ];
    assert_eq!(keys, expected);
    for problem in problems.iter() {
        assert!(problem.origin.ends_with("given.toml"), "{problem}");
        assert!(!problem.wish.is_empty() && !problem.wrong.is_empty(), "{problem}");
    }
    let report = problems.to_string();
    assert!(report.contains("did you mean server.listen?"), "{report}");
    assert!(!report.contains("hunter2"), "{report}");
}

#[test]
fn a_variable_overrides_one_key_and_its_fault_is_reported_under_its_name() {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    let set = |machine: &mut Surroundings, name: &str, value: &str| {
        machine.env.insert(format!("CODEX_EDGE__{name}"), value.to_owned());
    };
    write(&machine.system_file, "[log]\nformat = 'text'\n[routing]\nmax_attempts = 2\n");
    set(&mut machine, "LOG__FORMAT", "json");
    set(&mut machine, "SERVER__LISTEN", "127.0.0.1:1, [::1]:2");
    set(&mut machine, "SERVER__H2C", "true");
    set(&mut machine, "SERVER__THREADS", "3");
    set(&mut machine, "AUTH__PARSE_GRACE", "9s");
    set(&mut machine, "COMPAT__RELAY", "[\"wham/usage\"]");
    let config = Config::load(&machine).unwrap().config;
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.protocol, EdgeProtocol::PlainWithH2c);
    assert_eq!(config.server.threads.unwrap().get(), 3);
    assert_eq!(config.auth.parse_grace, Duration::from_secs(9));
    assert_eq!(config.compat.relay, ["wham/usage"]);
    assert_eq!(config.routing.max_attempts.get(), 2);

    set(&mut machine, "SERVER__THREADS", "many");
    set(&mut machine, "SERVER__COLOUR", "blue");
    let report = Config::load(&machine).unwrap_err().to_string();
    assert!(report.contains("CODEX_EDGE__SERVER__THREADS: server.threads"), "{report}");
    assert!(report.contains("CODEX_EDGE__SERVER__COLOUR: server.colour"), "{report}");
}

#[test]
fn impossible_combinations_are_refused() {
    let table = [
        ("[server]\nlisten = []", "server.listen"),
        ("[server]\nlisten = ['127.0.0.1:8318']", "server.listen"),
        ("[server]\nh2c = true\ntls.cert = '/c'\ntls.key = '/k'", "server.h2c"),
        ("[server]\ntls.key = '/k'", "server.tls.cert"),
        ("[server]\nmax_sockets = 10", "server.max_sockets_per_user"),
        ("[limits]\nbuffered_total = '1MiB'", "limits.replay_body"),
        ("[catalog]\nttl = '8d'", "catalog.ttl"),
        ("[[egress.account]]\naccount = 'a'", "egress.account"),
        ("[compat]\nrelay = ['wham/../x']", "compat.relay"),
        ("server = 5", "server"),
    ];
    for (text, key) in table {
        let problems = faults(text);
        let keys: Vec<&str> = problems.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, [key], "{text}");
    }
}

#[test]
fn the_service_managers_state_directory_is_the_data_directory() {
    let root = TempDir::new().unwrap();
    let mut machine = machine(root.path());
    machine.env.insert("STATE_DIRECTORY".to_owned(), "/var/lib/codex-edge".to_owned());
    let config = Config::load(&machine).unwrap().config;
    assert_eq!(config.server.data_dir, Path::new("/var/lib/codex-edge"));
}
