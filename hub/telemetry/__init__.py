"""Traces, exported by OpenTelemetry; imported only where somebody asks for them (the extra ``otel``)."""
