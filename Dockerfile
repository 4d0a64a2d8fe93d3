# Image of a home's service, UI and commands. Build: docker build --tag nvtrader .
FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY nvtrader_pipelines nvtrader_pipelines
COPY data data
RUN pip wheel --disable-pip-version-check --no-cache-dir --no-deps --wheel-dir /wheels /build

FROM python:3.11-slim
ARG PACKAGES=""
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN pip install --disable-pip-version-check --no-cache-dir --quiet -c /wheels/constraints.txt \
        "$(echo /wheels/nvtrader_pipelines-*.whl)[postgres]" $PACKAGES \
    && rm -r /wheels \
    && useradd --create-home --uid 10001 nvtrader \
    && install --directory --owner nvtrader /home/nvtrader/home
USER nvtrader
WORKDIR /home/nvtrader
ENV NVTRADER_HOME=/home/nvtrader/home
VOLUME /home/nvtrader/home
# a read that opens no table; the token is needed where the service is bound to another address than 127.0.0.1
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:8000/api/kill-switch', headers={'Authorization': 'Bearer ' + os.environ.get('NVTRADER_TOKEN', '')}), timeout=8)"]
CMD ["nvtrader", "serve", "--no-browser"]
