"""DuckDB views: definitions, the published file, publishing and queries; importing this loads none of them."""
