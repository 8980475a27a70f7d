# syntax=docker/dockerfile:1
# longcrawl with Apache Spark, for drivers and executors on Kubernetes, or for one machine; docs/cluster.md says how.
#
#     docker build -t longcrawl .
#     docker run --rm -v "$PWD:/shared" -u "$(id -u)" longcrawl longcrawl run quickstart --out quickstart --engine spark
#
# Spark's own images have Python 3.10, and longcrawl needs 3.11: theirs gives only the scripts by which Kubernetes starts
# drivers and executors. Spark itself is PySpark's, of the same version.
ARG SPARK=4.1.1
FROM apache/spark:${SPARK}-scala2.13-java17-ubuntu AS spark

FROM python:3.11-slim-bookworm
ARG SPARK
RUN apt-get update && \
    apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini gosu libnss-wrapper && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 185 --create-home spark
COPY --from=spark /opt/entrypoint.sh /opt/decom.sh /opt/

COPY . /tmp/longcrawl
RUN sed "s/^pyspark==.*/pyspark==${SPARK}/" /tmp/longcrawl/constraints.txt > /tmp/constraints.txt && \
    pip install --no-cache-dir -c /tmp/constraints.txt "/tmp/longcrawl[spark,warc,language,s3,gcs]" && \
    rm -rf /tmp/longcrawl /tmp/constraints.txt && \
    mkdir -p /opt/bin && packages=$(python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))") && \
    ln -s "$packages/pyspark" /opt/spark && \
    printf 'from longcrawl.cli import main\n\nmain()\n' > /opt/bin/submit.py && \
    ln -s "$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")" /opt/java

# Kernels are compiled here, for the processor of the build; pods on another kind of processor compile what they need
# again. Both caches are for every user, also one without a home.
ENV JAVA_HOME=/opt/java SPARK_HOME=/opt/spark PYSPARK_PYTHON=/usr/local/bin/python3 HF_HOME=/tmp/huggingface \
    NUMBA_CACHE_DIR=/opt/kernels XDG_CACHE_HOME=/opt/cache
RUN mkdir -p /opt/kernels /opt/cache && longcrawl warm && chmod -R a+rwX /opt/kernels /opt/cache && \
    rm -rf /tmp/huggingface

# The folder from which relative paths count: mount there what all pods share.
WORKDIR /shared
USER spark
ENTRYPOINT ["/opt/entrypoint.sh"]
