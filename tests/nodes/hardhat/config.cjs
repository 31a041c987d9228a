// The second node of the tests: what each of its processes is like comes from the environment.
const interval = Number(process.env.MINING_INTERVAL_MS);

module.exports = {
  solidity: "0.8.28",
  paths: { root: process.env.SCRATCH, cache: process.env.SCRATCH + "/cache", artifacts: process.env.SCRATCH + "/artifacts", sources: process.env.SCRATCH },
  networks: {
    hardhat: {
      chainId: Number(process.env.CHAIN_ID),
      hardfork: "prague",
      blockGasLimit: 60_000_000,
      initialBaseFeePerGas: 1_000_000_000,
      mining: { auto: false, interval },
      accounts: { count: 1 },
    },
  },
};
