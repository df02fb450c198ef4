# The page and the API, as a user without rights.
#
#   docker build -t batchline .
#   docker run --rm -p 8765:8765 batchline
#   docker run --rm batchline curve llama-3.1-70b --on 4xh100
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY requirements/users.txt requirements/build.txt requirements/
COPY src src
RUN python -m venv /app \
    && /app/bin/pip install --no-cache-dir --require-hashes --requirement requirements/users.txt \
    && python -m venv /tools \
    && /tools/bin/pip install --no-cache-dir --require-hashes --requirement requirements/build.txt \
    && /tools/bin/python -m build --wheel --no-isolation --outdir /dist . \
    && /app/bin/pip install --no-cache-dir --no-deps --no-index /dist/*.whl

FROM python:3.13-slim
# Korean letters for pictures.
RUN apt-get update && apt-get install --yes --no-install-recommends fonts-nanum fonts-liberation \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /usr/sbin/nologin batchline
COPY --from=build /app /app
USER batchline
WORKDIR /home/batchline
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8765/health', timeout=2)"]
ENTRYPOINT ["batchline"]
CMD ["serve", "--host", "0.0.0.0"]
