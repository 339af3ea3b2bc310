//! The edge as a service of Pingora.

use std::{sync::Arc, time::Duration};

use pingora_core::{
    connectors::ConnectorOptions,
    listeners::{TcpSocketOptions, tls::TlsSettings},
    protocols::TcpKeepalive,
    server::configuration::ServerConf,
    services::listening::Service,
};
use pingora_proxy::{HttpProxy, ProxyServiceBuilder};

use super::StartError;
use crate::{
    config::{Config, EdgeProtocol},
    edge::{
        AttemptConnector,
        connection::{self, ConnectionOptions},
        proxy::Edge,
    },
    gateway::Gateway,
    lifecycle::Bound,
};

type EdgeService = Service<HttpProxy<Edge, AttemptConnector>>;

pub(super) fn edge_service(
    conf: &Arc<ServerConf>,
    gateway: &Arc<Gateway>,
    config: &Config,
    listeners: &[Bound],
) -> Result<EdgeService, StartError> {
    let server = &config.server;
    let options = ConnectionOptions {
        first_byte_timeout: server.first_byte_timeout,
        head_timeout: server.head_timeout,
        keepalive_timeout: server.keepalive_timeout,
        h2c: server.protocol == EdgeProtocol::PlainWithH2c,
    };
    let connector = AttemptConnector::new(ConnectorOptions::from_server_conf(conf));
    let mut service = ProxyServiceBuilder::new(conf, Edge { gateway: Arc::clone(gateway) })
        .name("edge")
        .server_options(connection::server_options(&options))
        .custom(connector, connection::serve(options))
        .build();
    if let Some(proxy) = service.app_logic_mut() {
        proxy.h2_options = Some(connection::h2_options());
    }
    for bound in listeners {
        let address = bound.address.to_string();
        match &server.protocol {
            EdgeProtocol::Plain | EdgeProtocol::PlainWithH2c => {
                service.add_tcp_with_settings(&address, socket_options());
            }
            EdgeProtocol::Tls(files) => {
                let (cert, key) = (files.cert.to_string_lossy(), files.key.to_string_lossy());
                let mut tls = TlsSettings::intermediate(&cert, &key)
                    .map_err(|error| StartError::Tls(error.to_string()))?;
                tls.enable_h2();
                service.add_tls_with_settings(&address, Some(socket_options()), tls);
            }
        }
    }
    Ok(service)
}

/// A client that vanished without a word is noticed within two minutes.
fn socket_options() -> TcpSocketOptions {
    let mut options = TcpSocketOptions::default();
    options.tcp_keepalive = Some(TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        count: 3,
        user_timeout: Duration::ZERO,
    });
    options
}
